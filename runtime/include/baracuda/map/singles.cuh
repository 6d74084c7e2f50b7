// Sums without packs: one thread adds an output cell's terms one by one.
#pragma once

#include <baracuda/map/reduce.cuh>

namespace baracuda {

// Offsets of terms from an output cell: each thread of the block computes one, in shared memory.
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
    // Those from `first` on; beyond the last term, that of the last.
    __device__ void find(I first, const Space& space, const Strides<OPERANDS>& stride) {
        const I last = I(space.count) - 1, mine = first + threadIdx.x;
        const I term[1] = {mine < last ? mine : last};
        I at[1][OPERANDS];
        locate<0>(at, term, space, stride);
        __syncthreads();  // the last offsets have been read
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) found[o][threadIdx.x] = at[0][o];
        __syncthreads();
    }
    // Terms [from, from + TERMS) of the cell at `origin`, of which the first `count` exist.
    template <class R, int TERMS>
    __device__ void place(R (&run)[TERMS], int (&live)[TERMS], const R& origin, int from, int count) const {
#pragma unroll
        for (int k = 0; k < TERMS; ++k) {
            live[k] = k < count;
            run[k] = origin;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run[k].base[o] = found[o][from + k];
        }
    }
};

}  // namespace baracuda
