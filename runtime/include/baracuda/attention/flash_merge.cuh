// Split-KV attention: how keys are split, and the softmax over all splits from their partial results.
#pragma once

#include <baracuda/attention/flash_forward.cuh>
#include <baracuda/row/row.cuh>

namespace baracuda {

// How the keys of a head are split: `size` for each of `count` blocks. It depends on the numbers of keys and heads
// alone, so that the order of sums is independent of batch and device; the spec's `split_keys` is the same formula.
struct KeySplits {
    long long size, count;

    template <class Schedule, class Args> __device__ static KeySplits of(const Args& args) {
        const long long most = max(1ll, Schedule::SPLITS / args.num_kv_heads);
        const long long size = (max(256ll, (args.key_len + most - 1) / most) + 63) / 64 * 64;
        return {size, (args.key_len + size - 1) / size};
    }
};

// How a block merges the parts of a row: warp -> every WARPS-th part, lane -> every 32nd pack of its columns.
template <typename T, class Variant, class Args> struct FlashMerge {
    using A = acc_of<T>;
    static constexpr int THREADS = 256, WARPS = THREADS / WARP, DV = Variant::DV;
    static constexpr int WIDE = DV % 128 == 0 && sizeof(A) == 4 ? 4 : DV % 64 == 0 ? 2 : 1;
    static constexpr int WIDTH = Variant::PACKED ? WIDE : 1, PACKS = (DV / WIDTH + WARP - 1) / WARP;
    static constexpr int PREFETCH = 32 / (PACKS * WIDTH);  // 32 sums are in flight
    using Packs = Pack<A, WIDTH>[PREFETCH][PACKS];
    using Columns = A[WARPS][PACKS * WARP * WIDTH];

    const Args& args;
    const long long& part;  // the row's first
    const int &parts, &warp, &lane;

    // Reads the warp's next PREFETCH parts, of those `from` on.
    __device__ __forceinline__ void fetch(Packs& next, int from) const {
#pragma unroll
        for (int i = 0; i < PREFETCH; ++i)
#pragma unroll
            for (int c = 0; c < PACKS; ++c) {
                const int p = from + i * WARPS + warp, col = (lane + c * WARP) * WIDTH;
                if (p < parts && col < args.d_v) next[i][c].load(args.part_sums + (part + p) * args.d_v + col);
            }
    }
    // The warp's sum of weighted parts; the first have been fetched.
    __device__ __forceinline__ void add_parts(A (&sum)[PACKS][WIDTH], Packs& next, const A* weight) const {
        for (int from = 0; from < parts; from += PREFETCH * WARPS) {
            if (from > 0) fetch(next, from);
#pragma unroll
            for (int i = 0; i < PREFETCH; ++i) {
                const int p = from + i * WARPS + warp;
                if (p >= parts) break;
#pragma unroll
                for (int c = 0; c < PACKS; ++c)
#pragma unroll
                    for (int e = 0; e < WIDTH; ++e) sum[c][e] = math::fma(weight[p], next[i][c].lane[e], sum[c][e]);
            }
        }
    }
    __device__ __forceinline__ void store_sum(Columns& of_warp, const A (&sum)[PACKS][WIDTH]) const {
#pragma unroll
        for (int c = 0; c < PACKS; ++c)
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) of_warp[warp][(lane + c * WARP) * WIDTH + e] = sum[c][e];
    }
};

// y and lse from the partial results of all splits that a query attends to.
//
// Block -> a row of y; thread -> a part's weight; warp -> every eighth part, lane -> every 32nd pack of its columns.
// Warps are added in order. Each partial sum is read once; the first ones are prefetched before weights are known.
template <typename T, class Schedule, class Variant, class Args> __device__ void flash_sdpa_merge(const Args& args) {
    using Merge = FlashMerge<T, Variant, Args>;
    using A = typename Merge::A;
    constexpr int THREADS = Merge::THREADS, WARPS = Merge::WARPS;
    static_assert(Schedule::SPLITS <= THREADS && Merge::PREFETCH > 0, "a thread has one part");
    using Row = Tile<THREADS, 1, 1, true>;
    __shared__ A weight[THREADS];
    __shared__ typename Merge::Columns of_warp;

    const long long query = blockIdx.x % args.query_len, which = blockIdx.x / args.query_len;
    const long long head = which % args.num_heads, batch = which / args.num_heads;
    if (batch >= args.batch_size) return;
    wait_on_dependent_grids();
    const KeySplits splits = KeySplits::template of<Schedule>(args);
    const Band band = flash_band<Variant>(args);
    const long long first_key = band.first(0), end_key = band.end(args.query_len - 1);
    const long long first = first_key / splits.size;
    const int parts = first_key < end_key ? int((end_key + splits.size - 1) / splits.size - first) : 0;
    const long long part = blockIdx.x * splits.count + first;
    const int own = threadIdx.x, warp = own / WARP, lane = own % WARP;

    typename Merge::Packs next;
    const Merge merge = {args, part, parts, warp, lane};
    merge.fetch(next, 0);

    const ScoreUnits<A> scores(args.scale, PLAIN_SCORES<Variant>);
    const A largest = own < parts ? args.part_largest[part + own] : -math::infinity<A>();
    int phase = 0;
    const A high = reduce_row<Row, Max<A>>(largest, phase);
    weight[own] = quick_exp2((largest - finite_or_zero(high)) * scores.unit);
    const A total = reduce_row<Row, Sum<A>>(own < parts ? weight[own] * args.part_totals[part + own] : A(0), phase);

    // The barrier of the reduction came after all weights.
    A sum[Merge::PACKS][Merge::WIDTH] = {};
    merge.add_parts(sum, next, weight);
    merge.store_sum(of_warp, sum);
    __syncthreads();

    const bool none = total == A(0);
    if (own < args.d_v) {
        A value = of_warp[0][own];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) value += of_warp[w][own];
        args.y.at(batch, head, query)[own] = T(none ? A(0) : value / total);
    }
    const A lse = none ? -math::infinity<A>() : high * scores.after + math::log(total);
    if (own == 0) *args.lse.at(batch, head, query) = lse;
}

}  // namespace baracuda
