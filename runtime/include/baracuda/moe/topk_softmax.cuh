// The gate of a mixture of experts: each row's softmax, and the largest of its numbers with their places.
//
// warp -> a row; lane -> numbers 32 apart, in registers. The largest are found one after the other, by a number's size,
// then its place; NaN is larger than any number. Each row is summed in the same order, in a batch of any size.
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/math.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {
namespace moe {

template <typename A> struct Ranked {
    A value;
    int place;

    // Whether it comes before another.
    __device__ __forceinline__ bool before(A other, int its_place) const {
        const bool nan = value != value, other_nan = other != other;
        if (nan != other_nan) return nan;
        return value > other || ((value == other || nan) && place < its_place);
    }
    __device__ __forceinline__ void take(A other, int its_place) {
        if (before(other, its_place)) return;
        value = other;
        place = its_place;
    }
};

// Of all lanes, what comes before the others'.
template <typename A> __device__ __forceinline__ Ranked<A> first_of_warp(Ranked<A> of) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        const A value = __shfl_xor_sync(ALL_LANES, of.value, step);
        of.take(value, __shfl_xor_sync(ALL_LANES, of.place, step));
    }
    return of;
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void topk_softmax_main(const Args& args) {
    using A = acc_of<T>;
    constexpr int EACH = Variant::EACH, WARPS = Schedule::THREADS / WARP, NONE = 1 << 30;
    const int lane = threadIdx.x % WARP, experts = int(args.experts);
    const long long row = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= args.tokens) return;
    A value[EACH];
    unsigned taken = 0;  // one bit of each number; those that do not exist are
    moe::Ranked<A> best = {-math::infinity<A>(), NONE};
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const int place = i * WARP + lane;
        if (place < experts) {
            value[i] = A(*args.logits.at(row, place));
            best.take(value[i], place);
        } else {
            value[i] = -math::infinity<A>();
            taken |= 1u << i;
        }
    }
    best = moe::first_of_warp(best);
    const A largest = best.value;
    A total = 0;
    if (!Variant::RENORMALIZE) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (i * WARP + lane < experts) total += math::exp(value[i] - largest);
        }
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
    }
    A chosen = 0;  // of lane j, the weight of choice j
    const int top = int(args.top_k);
#pragma unroll 1
    for (int j = 0; j < top; ++j) {
        const A weight = math::exp(best.value - largest);
        if (Variant::RENORMALIZE) total += weight;
        if (lane == j) {
            chosen = weight;
            *args.ids.at(row, j) = best.place;
        }
        moe::Ranked<A> next = {-math::infinity<A>(), NONE};
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            if (i * WARP + lane == best.place) taken |= 1u << i;
            if (!(taken >> i & 1)) next.take(value[i], i * WARP + lane);
        }
        best = moe::first_of_warp(next);
    }
    if (lane < top) *args.weights.at(row, lane) = chosen / total;
}

}  // namespace baracuda
