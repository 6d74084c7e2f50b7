// N neighbours in memory, moved 16 bytes at a time.
#pragma once

#include <baracuda/element.cuh>

namespace baracuda {

template <int BYTES> struct Word;
template <> struct Word<16> { using type = uint4; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<1> { using type = unsigned char; };

template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
    T lane[N];

    // The address must be a multiple of the pack's alignment, in global memory to store to.
    __device__ void load(const T* address) { *this = *reinterpret_cast<const Pack*>(address); }
    __device__ void store(T* address) const {
#ifdef BARACUDA_HOST
        __stwb(reinterpret_cast<Pack*>(address), *this);
#else  // in words, because NVRTC takes the copy of a struct apart and stores its members
        using W = typename Word<alignof(Pack)>::type;
        struct Words { W word[sizeof(Pack) / sizeof(W)]; };
        const Words words = __builtin_bit_cast(Words, *this);
#pragma unroll
        for (int i = 0; i < int(sizeof(Pack) / sizeof(W)); ++i) __stwb(reinterpret_cast<W*>(address) + i, words.word[i]);
#endif
    }
};

}  // namespace baracuda
