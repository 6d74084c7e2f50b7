// Split-KV attention, for few queries and many keys: the rows of all heads that share keys make one tile, so that keys
// are read once, and several blocks split the keys, to fill the device.
#pragma once

#include <baracuda/attention/flash_merge.cuh>

namespace baracuda {

// The schedule of one warp, which has all of the tile's rows and its own keys.
template <class Schedule> struct OneWarp {
    static constexpr int THREADS = 32, BLOCK_Q = Schedule::BLOCK_Q, BLOCK_K = Schedule::BLOCK_K, STAGES = 1;
};

template <typename T, class Schedule, class Variant> struct FlashSplit : FlashForward<T, OneWarp<Schedule>, Variant> {
    using Flash = FlashForward<T, OneWarp<Schedule>, Variant>;
    using A = typename Flash::A;
    using Op = typename Flash::Op;
    using Flash::BLOCK_K, Flash::BLOCK_Q, Flash::DK, Flash::DV, Flash::ROW_TILES, Flash::SIDES;
    static constexpr int THREADS = Schedule::THREADS, WARPS = THREADS / 32, STAGES = Schedule::STAGES;
    static constexpr int STEP = WARPS * BLOCK_K;  // keys from one tile of a warp to its next

    struct Ring {
        T k[STAGES][BLOCK_K * DK], v[STAGES][BLOCK_K * DV];
    };
    // Each warp's sums, relative to its own maxima; the pitch avoids bank conflicts.
    struct Sums {
        A sum[WARPS][BLOCK_Q][DV + 8], largest[WARPS][BLOCK_Q], total[WARPS][BLOCK_Q];
    };
    struct Shared {
        T q[BLOCK_Q * DK];
        union {
            Ring ring[WARPS];
            Sums sums;
        };
    };
    static_assert(sizeof(Sums) <= sizeof(Ring) * WARPS && STAGES >= 2, "sums take the place of keys and values");

    // Row r of a tile is query r % queries of the group's head r / queries, both counted from the tile's first row.
    unsigned queries, row0;
    int rows;  // that the tile has

    template <class Args>
    __device__ __forceinline__ FlashSplit(const Args& args, unsigned group, unsigned first)
        : Flash(args.scale),
          queries(unsigned(args.query_len)),
          row0(first),
          rows(min(BLOCK_Q, int(group * unsigned(args.query_len) - first))) {}

    __device__ __forceinline__ unsigned head(int row) const { return (row0 + row) / queries; }
    __device__ __forceinline__ unsigned query(int row) const { return (row0 + row) % queries; }

    // The tile's rows from the heads of a group, of which `first_head` is the first.
    template <class Args>
    __device__ __forceinline__ void copy_queries(T* to, const Args& args, long long batch, long long first_head) const {
        constexpr int WIDTH = Variant::PACKED ? 16 / int(sizeof(T)) : 1, PARTS = DK / WIDTH;
        const typename Flash::QTile tile{to};
        for (int part = threadIdx.x; part < BLOCK_Q * PARTS; part += THREADS) {
            const int row = part / PARTS, col = part % PARTS * WIDTH;
            const bool inside = row < rows && col < args.d_k;
            const T* from = args.q.data;
            if (inside) from = args.q.at(batch, first_head + head(row), query(row)) + col;
            if constexpr (Variant::PACKED) cp_async_cg(tile.at(row, col), from, inside ? 16 : 0);
            else *tile.at(row, col) = inside ? *from : T{};
        }
    }

    // Applies scale, soft cap, ALiBi and mask to scores of keys from `key` on.
    template <class Args>
    __device__ __forceinline__ void change_scores(const Args& args, const Band& band, long long batch,
                                                  long long first_head, long long key, long long end) {
        if constexpr (Flash::PLAIN) {
            if (this->before != A(1)) this->each_score([&](A& s, int, int, int) { s *= this->before; });
            return;
        }
        const A cap = A(args.softcap);
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) {
                const int row = Flash::row(m, side);
                if (row >= rows) continue;
                const long long of_head = first_head + head(row), own = key + Flash::column();
                const A slope = Variant::HAS_ALIBI_SLOPES ? *args.alibi_slopes.at(batch, of_head) : A(0);
                const A distance = A((long long)query(row) + band.shift - own);
                const A* mask = nullptr;
                if constexpr (Variant::HAS_MASK) mask = args.mask.at(batch, of_head, query(row), own);
                each_of_row(m, side, [&](A& s, int beyond) {
                    s *= this->before;
                    if (Variant::SOFTCAP) s = capped(s, cap);
                    if (Variant::HAS_ALIBI_SLOPES) s -= slope * math::abs(distance - A(beyond));
                    if constexpr (Variant::HAS_MASK)
                        if (own + beyond < end) s += mask[beyond * args.mask.stride[3]];
                });
            }
    }

    // Masks keys that a row does not attend to or that are not this block's.
    __device__ __forceinline__ void mask_scores(const Band& band, long long key, long long end) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) {
                const long long own = Variant::BAND ? query(Flash::row(m, side)) : 0, far = BLOCK_K;
                const int low = int(max(0ll, min(band.first(own) - key, far)));
                const int high = int(max(0ll, min(min(band.end(own), end) - key, far)));
                each_of_row(m, side, [&](A& s, int beyond) {
                    const int col = Flash::column() + beyond;
                    if (col < low || col >= high) s = -math::infinity<A>();
                });
            }
    }

    // Stores this warp's sums to shared memory.
    __device__ __forceinline__ void store_sums(Sums& sums) const {
        const int warp = threadIdx.x / 32;
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) {
                const int row = Flash::row(m, side);
                A total = this->total[m][side];
                total += __shfl_xor_sync(ALL_LANES, total, 1);
                total += __shfl_xor_sync(ALL_LANES, total, 2);
#pragma unroll
                for (int n = 0; n < Flash::O_TILES; ++n) {
                    const A* const value = this->out[m][n].value + 2 * side;
                    *reinterpret_cast<Pack<A, 2>*>(&sums.sum[warp][row][n * 8 + Flash::column()]) = {value[0],
                                                                                                     value[1]};
                }
                if (Op::lane() % 4 == 0) {
                    sums.largest[warp][row] = this->largest[m][side];
                    sums.total[warp][row] = total;
                }
            }
    }

private:
    // change(score, column beyond column()) for each of the lane's scores of a row.
    template <class Change> __device__ __forceinline__ void each_of_row(int m, int side, const Change& change) {
#pragma unroll
        for (int n = 0; n < Flash::S_TILES; ++n)
#pragma unroll
            for (int j = 0; j < 2; ++j) change(this->score[m][n].value[2 * side + j], n * 8 + j);
    }
};

// A warp's copies of tiles of keys and values, of those before `end`.
template <typename T, class Flash, class Variant, class Args> struct WarpLoads {
    typename Flash::Ring& ring;
    const Args& args;
    const T *const &k, *const &v;
    const long long& end;
    const int& lane;

    __device__ __forceinline__ void load(long long key, int stage) const {
        if (key >= end) return;
        const long long rows = end - key, k_stride = args.k.stride[2], v_stride = args.v.stride[2];
        const typename Flash::KTile keys{ring.k[stage]};
        const typename Flash::VTile values{ring.v[stage]};
        copy_rows<32, Variant::PACKED>(keys, k + key * k_stride, k_stride, rows, args.d_k, opaque(lane));
        copy_rows<32, Variant::PACKED>(values, v + key * v_stride, v_stride, rows, args.d_v, opaque(lane));
    }
};

// The partial results of one split of the keys: sums of weights times values and of weights, and the maximum that both
// are relative to.
//
// Block -> a batch, a head of keys and values, a part of its keys, and BLOCK_Q rows of the heads that it serves;
// warp -> every WARPS-th tile of BLOCK_K keys, all rows; lane -> the elements of Mma's sums. A warp copies its own keys
// and values, STAGES - 1 tiles ahead, and synchronizes with others at the end only. Memory traffic: each key and value
// once for every BLOCK_Q rows, and a row of sums for each row and split. A split that no query attends to writes
// nothing.
template <typename T, class Schedule, class Variant, class Args> __device__ void flash_sdpa_split(const Args& args) {
    using Flash = FlashSplit<T, Schedule, Variant>;
    using A = typename Flash::A;
    using Shared = typename Flash::Shared;
    constexpr int BLOCK_Q = Flash::BLOCK_Q, BLOCK_K = Flash::BLOCK_K, STAGES = Flash::STAGES, STEP = Flash::STEP;
    constexpr int WARPS = Flash::WARPS, DV = Flash::DV;
    DYN_SHARED(Shared, shared);
    static_assert(reserves(sizeof(Shared)), "the launch reserves Shared");
    launch_dependent_grids();

    const KeySplits splits = KeySplits::template of<Schedule>(args);
    const unsigned kv_heads = unsigned(args.num_kv_heads), group = unsigned(args.num_heads) / kv_heads;
    const unsigned tiles = (group * unsigned(args.query_len) + BLOCK_Q - 1) / BLOCK_Q, count = unsigned(splits.count);
    const unsigned place = blockIdx.x / tiles, which = place / count;
    const long long split = place % count, batch = which / kv_heads, kv_head = which % kv_heads;
    if (batch >= args.batch_size) return;
    const Band band = flash_band<Variant>(args);
    const long long last = args.query_len - 1;
    const long long begin = max(band.first(0), split * splits.size);
    const long long end = min(band.end(last), (split + 1) * splits.size);
    if (begin >= end) return;

    Flash flash(args, group, blockIdx.x % tiles * BLOCK_Q);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    typename Flash::Ring& ring = shared->ring[warp];
    const T* const k = args.k.at(batch, kv_head);
    const T* const v = args.v.at(batch, kv_head);
    const WarpLoads<T, Flash, Variant, Args> loads = {ring, args, k, v, end, lane};

    const long long first = begin + warp * BLOCK_K;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        loads.load(first + stage * STEP, stage);
        if (stage == 0) flash.copy_queries(shared->q, args, batch, kv_head * group);
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();  // queries and this warp's first tiles have arrived
    const typename Flash::QTile q{shared->q};
    flash.load_query_fragments(q);

    const long long common_first = band.first(last), common_end = min(band.end(0), end);
    int stage = 0;
    for (long long key = first; key < end; key += STEP) {
        cp_async_wait_group<STAGES - 2>();
        __syncwarp();  // the tile has arrived, and all lanes are done with the one before
        loads.load(key + (STAGES - 1) * STEP, stage == 0 ? STAGES - 1 : stage - 1);
        cp_async_commit_group();
        flash.multiply_keys(q, {ring.k[stage]});
        flash.change_scores(args, band, batch, kv_head * group, key, end);
        if (key < common_first || key + BLOCK_K > common_end) flash.mask_scores(band, key, end);
        flash.online_softmax();
        flash.add_values({ring.v[stage]});
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    typename Flash::Sums& sums = shared->sums;
    __syncthreads();  // keys and values are no longer needed
    flash.store_sums(sums);
    __syncthreads();  // the sums of all warps are stored
    for (int element = threadIdx.x; element < flash.rows * DV; element += Flash::THREADS) {
        const int row = element / DV, col = element % DV;
        A high = -math::infinity<A>(), total = 0, sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) high = max_number(high, sums.largest[w][row]);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const A weight = quick_exp2((sums.largest[w][row] - finite_or_zero(high)) * flash.unit);
            total = math::fma(weight, sums.total[w][row], total);
            sum = math::fma(weight, sums.sum[w][row][col], sum);
        }
        const long long head = kv_head * group + flash.head(row);
        const long long y_row = (batch * args.num_heads + head) * args.query_len + flash.query(row);
        const long long part = y_row * splits.count + split;
        if (col < args.d_v) args.part_sums[part * args.d_v + col] = sum;
        if (col == 0) args.part_largest[part] = high, args.part_totals[part] = total;
    }
}

}  // namespace baracuda
