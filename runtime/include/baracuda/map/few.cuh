// Columns of few terms: where each lies is known when the kernel is compiled.
#pragma once

#include <baracuda/map/place.cuh>

namespace baracuda {

// The extents of the reduced axes, the last of them first, and which operands are their indices; the number of operands
// stands for none.
#ifndef BARACUDA_TERMS
#define BARACUDA_TERMS
#define BARACUDA_TERM_INDICES 0
#endif

// No EXTENTS where terms are not few.
template <int... EXTENTS> struct FewTerms {
    static constexpr int COUNT = sizeof...(EXTENTS) == 0 ? 0 : (1 * ... * EXTENTS);

    // The terms of a step: a power of two.
    __device__ static constexpr int at_once(int most) {
        int power = 1;
        while (power < COUNT && power < most) power *= 2;
        return power;
    }
    // Moves a run to a term; beyond the last one it stays.
    template <class R, int OPERANDS> __device__ static void move(R& run, int term, const Strides<OPERANDS>& stride) {
        using I = typename R::type;
        constexpr int EXTENT[] = {EXTENTS...}, INDEX[] = {BARACUDA_TERM_INDICES};
        int rest = term < COUNT ? term : 0;
#pragma unroll
        for (int axis = 0; axis < int(sizeof...(EXTENTS)); ++axis) {
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) {
                if (o == INDEX[axis]) run.set(o, I(rest % EXTENT[axis]));
                else run.base[o] += I(rest % EXTENT[axis]) * I(stride[alike(o)][axis]);
            }
            rest /= EXTENT[axis];
        }
    }
};

// A thread's owner, where it has one of its own.
template <int THREADS> struct OwnPack {
    int owners = THREADS, owner = threadIdx.x;
};

}  // namespace baracuda
