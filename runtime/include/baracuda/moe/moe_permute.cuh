// Rows sorted by the number of their expert, rows of one expert in the order that they come in: a counting sort.
//
// sort: block -> an expert, which counts the numbers before its own and gives its rows their places; the last block
// has the numbers of no expert, which come last. Nothing is added atomically, so that places depend on numbers alone.
// copy: warp -> a row of x for one of its experts at a time
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_sort(const Args& args) {
    constexpr int THREADS = Schedule::THREADS, WARPS = THREADS / WARP;
    __shared__ int counts[2][WARPS];
    const int experts = int(args.experts), own = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int top = int(args.top_k), slots = int(args.tokens) * top;
    const auto number_of = [&](int slot) {
        const long long id = *args.ids.at(slot / top, slot % top);
        return id < 0 || id >= experts ? experts : int(id);
    };
    int before = 0;
    for (int slot = threadIdx.x; slot < slots; slot += THREADS) before += number_of(slot) < own;
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) before += __shfl_xor_sync(ALL_LANES, before, step);
    if (lane == 0) counts[0][warp] = before;
    __syncthreads();
    int next = 0;  // place
    for (int i = 0; i < WARPS; ++i) next += counts[0][i];
    __syncthreads();
    int buffer = 0;
    for (int first = 0; first < slots; first += THREADS, buffer ^= 1) {
        const int slot = first + int(threadIdx.x);
        const bool is_own = slot < slots && number_of(slot) == own;
        const unsigned lanes = __ballot_sync(ALL_LANES, is_own);
        if (lane == 0) counts[buffer][warp] = __popc(lanes);
        __syncthreads();  // the other buffer is free: all have read it
        int place = next + __popc(lanes & ((1u << lane) - 1));
        for (int i = 0; i < WARPS; ++i) {
            if (i < warp) place += counts[buffer][i];
            next += counts[buffer][i];
        }
        if (is_own) *args.places.at(slot / top, slot % top) = place;
    }
    if (threadIdx.x == 0 && own < experts) *args.ends.at(own) = next;
}

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_copy(const Args& args) {
    constexpr int WARPS = Schedule::THREADS / WARP, VEC = 16 / int(sizeof(T));
    const int lane = threadIdx.x % WARP, top = int(args.top_k);
    const long long slots = args.tokens * top, step = (long long)gridDim.x * WARPS;
    const bool packed = args.x.stride[1] == 1 && args.rows.stride[1] == 1 && args.width % VEC == 0 &&
                        args.x.stride[0] % VEC == 0 && args.rows.stride[0] % VEC == 0 &&
                        size_t(args.x.data) % 16 == 0 && size_t(args.rows.data) % 16 == 0;
    for (long long slot = (long long)blockIdx.x * WARPS + threadIdx.x / WARP; slot < slots; slot += step) {
        const long long token = slot / top;
        const T* const from = args.x.at(token);
        T* const to = args.rows.at(*args.places.at(token, slot - token * top));
        if (packed) {
            for (long long i = lane * VEC; i < args.width; i += WARP * VEC) {
                Pack<T, VEC> pack;
                pack.load(from + i);
                pack.store(to + i);
            }
        } else {
            for (long long i = lane; i < args.width; i += WARP)
                to[i * args.rows.stride[1]] = from[i * args.x.stride[1]];
        }
    }
}

}  // namespace baracuda
