// Gradient of rows that were sorted by expert: those of each row's copies, added in the order of its experts.
//
// warp -> a part of a row; lane -> a pack of it, of which several copies are in flight.
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

namespace moe {

// Reads what exists of a pack of each copy.
template <typename T, int VEC, int COPIES>
__device__ void read_copies(Pack<T, VEC> (&pack)[COPIES], const T* const (&from)[COPIES], const int (&exist)[COPIES],
                            bool packed, long long stride) {
    if (packed) {
#pragma unroll
        for (int k = 0; k < COPIES; ++k)
            if (exist[k] > 0) pack[k].load(from[k]);
    } else {
#pragma unroll
        for (int i = 0; i < COPIES * VEC; ++i)
            if (i % VEC < exist[i / VEC]) pack[i / VEC].lane[i % VEC] = from[i / VEC][i % VEC * stride];
    }
}

// Stores the first `live` of a pack.
template <typename T, typename A, int VEC>
__device__ void store_sums(T* to, const A (&sum)[VEC], int live, bool packed, long long stride) {
    Pack<T, VEC> result;
#pragma unroll
    for (int i = 0; i < VEC; ++i) result.lane[i] = T(sum[i]);
    if (packed) {
        if (live > 0) result.store(to);
    } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i)
            if (i < live) to[i * stride] = result.lane[i];
    }
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_backward_main(const Args& args) {
    using A = acc_of<T>;
    constexpr int VEC = 16 / int(sizeof(T)), COPIES = Schedule::COPIES, SPAN = WARP * VEC;
    const int lane = threadIdx.x % WARP, top = int(args.top_k);
    const long long parts = (args.width + SPAN - 1) / SPAN, copies = args.tokens * top;
    const long long item = (long long)blockIdx.x * (Schedule::THREADS / WARP) + threadIdx.x / WARP;
    const long long token = item / parts, column = (item - token * parts) * SPAN + lane * VEC;
    if (token >= args.tokens) return;
    const int live = column >= args.width ? 0 : args.width - column < VEC ? int(args.width - column) : VEC;
    const bool packed = are_packs<VEC>(args.drows, args.width);
    const bool stores_packs = are_packs<VEC>(args.dx, args.width);
    A sum[VEC] = {};
    for (int base = 0; base < top; base += WARP) {
        const int own = base + lane < top ? *args.places.at(token, base + lane) : -1;
        const int left = top - base < WARP ? top - base : WARP;
        for (int j = 0; j < left; j += COPIES) {
            Pack<T, VEC> pack[COPIES] = {};
            const T* from[COPIES];
            int exist[COPIES];  // columns
#pragma unroll
            for (int k = 0; k < COPIES; ++k) {
                const int place = __shfl_sync(ALL_LANES, own, (j + k) % WARP);
                exist[k] = j + k < left && place >= 0 && place < copies ? live : 0;
                from[k] = args.drows.at(place, column);
            }
            moe::read_copies(pack, from, exist, packed, args.drows.stride[1]);
#pragma unroll
            for (int k = 0; k < COPIES; ++k)
#pragma unroll
                for (int i = 0; i < VEC; ++i) sum[i] += A(value_of(pack[k], i));
        }
    }
    moe::store_sums(args.dx.at(token, column), sum, live, stores_packs, args.dx.stride[1]);
}

}  // namespace baracuda
