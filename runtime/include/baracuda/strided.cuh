// A tensor as the caller has it: any strides, counted in elements. Members are 8-byte words, so the host fills them as
// an array.
#pragma once

namespace baracuda {

template <typename T, int RANK> struct Strided {
    T* data;
    long long stride[RANK];

    // The element at an index of as many axes as are given; the others stay at 0.
    template <typename... I> __device__ T* at(I... index) const {
        const long long given[] = {static_cast<long long>(index)...};
        long long offset = 0;
#pragma unroll
        for (int axis = 0; axis < int(sizeof...(I)); ++axis) offset += given[axis] * stride[axis];
        return data + offset;
    }
};

// Whether rows begin where packs of VEC elements do, and are whole packs, if their width is given.
template <int VEC, class Array> __device__ bool are_packs(const Array& of, long long width = 0) {
    return of.stride[1] == 1 && of.stride[0] % VEC == 0 && size_t(of.data) % 16 == 0 && width % VEC == 0;
}

}  // namespace baracuda
