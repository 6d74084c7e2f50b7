// Sums of cells that no packs are made of: each cell's terms are added up by one thread, which takes them one by one.
#pragma once

#include <baracuda/map/map.cuh>

namespace baracuda {

// How far terms lie from a kept cell: of as many as a block has threads, each found by one of them for all.
template <class I, int THREADS, int OPERANDS> struct TermPlaces {
    I (*found)[THREADS];

    __device__ TermPlaces() {
        // Aligned, so that four are read at once.
        struct alignas(16) Places {
            I of[OPERANDS][THREADS];
        };
        __shared__ Places places;
        found = places.of;
    }
    // Those from `first` on; beyond the last, its place again.
    __device__ void find(I first, const Space& space, const Strides<OPERANDS>& stride) {
        const I last = I(space.count) - 1, mine = first + threadIdx.x;
        const I term[1] = {mine < last ? mine : last};
        I at[1][OPERANDS];
        locate<0>(at, term, space, stride);
        __syncthreads();  // what was there has been read
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) found[o][threadIdx.x] = at[0][o];
        __syncthreads();
    }
    // Terms of the cell that is at home, from a number on, of which the first `count` are there.
    template <class R, int TERMS>
    __device__ void place(R (&run)[TERMS], int (&live)[TERMS], const R& home, int from, int count) const {
#pragma unroll
        for (int k = 0; k < TERMS; ++k) {
            live[k] = k < count;
            run[k] = home;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run[k].base[o] = found[o][from + k];
        }
    }
};

}  // namespace baracuda
