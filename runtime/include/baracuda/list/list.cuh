// Arrays of lists, cut into chunks: where a block's chunk lies, and its packs.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {

// The chunk of a block: elements from `begin` on of array `array`, which has `size` of them.
struct Chunk {
    int array;
    long long begin, size;
};

// first[a] is the number of the first chunk of array a; arrays of size 0 are none of the `count` arrays.
template <int ELEMENTS>
__device__ Chunk chunk_of(long long block, const long long* first, const long long* size, int count) {
    int array = 0;
    for (int end = count; end - array > 1;) {
        const int middle = (array + end) / 2;
        if (first[middle] <= block) {
            array = middle;
        } else {
            end = middle;
        }
    }
    return {array, (block - first[array]) * ELEMENTS, size[array]};
}

// The packs of a thread: where each begins, and how many of its elements exist.
template <int N, int PACKS, int THREADS> struct ChunkPacks {
    long long at[PACKS];
    int live[PACKS];
    bool all;  // of every thread of the block

    __device__ explicit ChunkPacks(const Chunk& chunk) : all(chunk.begin + PACKS * THREADS * N <= chunk.size) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            at[k] = chunk.begin + (k * THREADS + int(threadIdx.x)) * N;
            const long long left = chunk.size - at[k];
            live[k] = left >= N ? N : left > 0 ? int(left) : 0;
        }
    }
    template <typename T> __device__ bool whole(const T* data) const {
        return all && (__builtin_bit_cast(u64, data) & (alignof(Pack<T, N>) - 1)) == 0;
    }
    // The elements of an array of any alignment, zeros for those that do not exist.
    template <typename T> __device__ void read(Pack<T, N> (&pack)[PACKS], const T* data) const {
        PackWords<T, N> words[PACKS];
        if (whole(data)) {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) words[k].load(data + at[k]);
        } else {
#pragma unroll
            for (int k = 0; k < PACKS; ++k) {
                Pack<T, N> lanes = {};
#pragma unroll
                for (int i = 0; i < N; ++i)
                    if (i < live[k]) lanes.lane[i] = data[at[k] + i];
                words[k].set(lanes);
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) pack[k] = words[k].pack();
    }
    template <typename T> __device__ void write(const Pack<T, N> (&pack)[PACKS], T* data) const {
        const bool packs = whole(data);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            if (packs) {
                pack[k].store(data + at[k]);
            } else {
#pragma unroll
                for (int i = 0; i < N; ++i)
                    if (i < live[k]) data[at[k] + i] = pack[k].lane[i];
            }
        }
    }
};

}  // namespace baracuda
