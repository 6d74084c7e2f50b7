// Gradient of the gate of a mixture of experts, from the chosen weights: that of a softmax, of which the numbers that
// are not chosen have a part where weights are not renormalized.
//
// warp -> a row; lane j -> choice j, then packs of the row, then choice j again, in its place.
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

namespace moe {

__device__ inline bool is_expert(int id, int experts) { return id >= 0 && id < experts; }

// Stores what a warp's row has where no number is chosen, `of` each number.
template <bool ZEROS, typename T, class F>
__device__ void store_others(T* to, long long to_apart, const T* from, long long apart, int experts, const F& of) {
    constexpr int VEC = 16 / int(sizeof(T));
    const bool packed =
        apart == 1 && to_apart == 1 && experts % VEC == 0 && size_t(from) % 16 == 0 && size_t(to) % 16 == 0;
    const int lane = threadIdx.x % WARP, each = packed ? VEC : 1;
    for (int i = lane * each; i < experts; i += WARP * each) {
        if (packed) {
            Pack<T, VEC> pack = {};
            if (!ZEROS) {
                pack.load(from + i);
#pragma unroll
                for (int k = 0; k < VEC; ++k) pack.lane[k] = of(pack.lane[k]);
            }
            pack.store(to + i);
        } else {
            to[i * to_apart] = ZEROS ? T(acc_of<T>(0)) : of(from[i * apart]);
        }
    }
}

// What the lanes whose bit is set in `alike` have, added up in their order; `several`: any lane of the warp has two.
template <typename A> __device__ A sum_of_alike(A own, unsigned alike, bool several) {
    if (!__any_sync(ALL_LANES, several)) return own;
    A sum = A(0);
    for (int j = 0; j < WARP; ++j) {
        const A other = __shfl_sync(ALL_LANES, own, j);
        if (alike >> j & 1) sum += other;
    }
    return sum;
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void topk_softmax_backward_main(const Args& args) {
    using A = acc_of<T>;
    constexpr int WARPS = Schedule::THREADS / WARP;
    const int lane = threadIdx.x % WARP, experts = int(args.experts);
    const long long number = (long long)blockIdx.x * WARPS + threadIdx.x / WARP;
    const bool exists = number < args.tokens;
    const long long row = exists ? number : 0;
    const bool has_choice = lane < args.top_k;
    const A weight = has_choice ? *args.weights.at(row, lane) : A(0);
    const A dweight = has_choice ? *args.dweights.at(row, lane) : A(0);
    const int id = has_choice ? *args.ids.at(row, lane) : -1;
    A shared = has_choice ? weight * dweight : A(0);  // what all exponents have in common
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) shared += __shfl_xor_sync(ALL_LANES, shared, step);
    const int first = __shfl_sync(ALL_LANES, id, 0);
    const A most = __shfl_sync(ALL_LANES, weight, 0);
    const T* const from = args.logits.at(row);
    T* const to = args.dlogits.at(row);
    const long long apart = args.logits.stride[1], to_apart = args.dlogits.stride[1];
    const A largest = !Variant::RENORMALIZE && moe::is_expert(first, experts) ? A(from[first * apart]) : A(0);
    const auto of = [&](T logit) { return T(-(most * math::exp(A(logit) - largest)) * shared); };
    if (exists) moe::store_others<Variant::RENORMALIZE>(to, to_apart, from, apart, experts, of);
    // Choices of one number, which the gate makes once only, are added up by the first of them.
    const unsigned alike = __match_any_sync(ALL_LANES, id);
    const A part = moe::sum_of_alike(weight * (dweight - shared), alike, id >= 0 && __popc(alike) > 1);
    __syncthreads();  // they are stored after the rest
    if (exists && moe::is_expert(id, experts) && (alike & ((1u << lane) - 1)) == 0) to[id * to_apart] = T(part);
}

}  // namespace baracuda
