// Attention forward by tiles with an online softmax: scores stay in registers and are computed once.
#pragma once

#include <baracuda/attention/scores.cuh>
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>

namespace baracuda {

// The maximum, ignoring NaN: a NaN score makes the row's sum NaN in any case.
__device__ __forceinline__ float max_number(float a, float b) { return ::fmaxf(a, b); }
__device__ __forceinline__ double max_number(double a, double b) { return ::fmax(a, b); }

// A window of this size or more is unlimited.
constexpr i64 OPEN = i64(1) << 60;

template <class Variant, class Args> __device__ __forceinline__ Band flash_band(const Args& args) {
    if (!Variant::BAND) return {args.key_len, args.bottom_right ? args.key_len - args.query_len : 0, -1, -1};
    return Band::of(args.query_len, args.key_len, args.bottom_right, args.is_causal,  //
                    i64(min(u64(args.window_left), u64(OPEN))), i64(min(u64(args.window_right), u64(OPEN))));
}

// Scale factors: `before` from products to scores, `after` from scores to natural exponents, `unit` to binary
// exponents. The scale is folded into the exponential if scores are not modified before it and nothing overflows.
template <typename A> struct ScoreUnits {
    A before, unit, after;

    __device__ __forceinline__ ScoreUnits(double scale, bool plain) {
        const bool folded = plain && scale > 1e-30 && scale < 1e30;
        before = folded ? A(1) : A(scale);
        after = folded ? A(scale) : A(1);
        unit = after * A(1.4426950408889634);
    }
};

// The reference of a row's exponents: 0 if all scores are -infinity, whose difference is undefined.
template <typename A> __device__ __forceinline__ A finite_or_zero(A high) {
    return high == -math::infinity<A>() ? A(0) : high;
}

// Whether scores are scaled products, unmodified.
template <class Variant>
constexpr bool PLAIN_SCORES = !Variant::SOFTCAP && !Variant::HAS_MASK && !Variant::HAS_ALIBI_SLOPES;

// The warps of a block share BLOCK_Q queries; one warp has all of them if THREADS is 32.
template <typename T, class Schedule, class Variant> struct FlashForward : ScoreUnits<acc_of<T>> {
    using A = acc_of<T>;
    static constexpr int THREADS = Schedule::THREADS, BLOCK_Q = Schedule::BLOCK_Q, BLOCK_K = Schedule::BLOCK_K;
    static constexpr int STAGES = Schedule::STAGES, DK = Variant::DK, DV = Variant::DV;
    static constexpr int WARP_ROWS = BLOCK_Q / (THREADS / 32);
    using Op = typename MmaFor<T, WARP_ROWS % 16 == 0>::type;
    using Sum = typename Op::Sum;
    static constexpr int ROW_TILES = WARP_ROWS / Op::ROWS;  // of a warp
    static constexpr int SIDES = Op::VALUES / 2;            // rows of a lane in a row tile
    static constexpr int S_TILES = BLOCK_K / 8, O_TILES = DV / 8;
    static constexpr bool PLAIN = PLAIN_SCORES<Variant>;
    static_assert(BLOCK_Q % (THREADS / 32 * Op::ROWS) == 0 && BLOCK_K % 16 == 0, "warps own whole fragments");
    static_assert(STAGES == 1 || STAGES == 2, "one or two buffers of keys and values");

    // Queries stay in registers if there is room beside scores and output.
    static constexpr int LEFT_WORDS = int(sizeof(typename Op::Left) / 4), SUM_WORDS = int(sizeof(Sum) / 4);
    static constexpr int Q_WORDS = ROW_TILES * (DK / Op::DEPTH) * LEFT_WORDS;
    static constexpr bool Q_IN_REGISTERS =
        Q_WORDS + ROW_TILES * (O_TILES + S_TILES) * SUM_WORDS <= (sizeof(T) == 8 ? 128 : 176);

    struct Shared {
        T q[BLOCK_Q * DK], k[STAGES][BLOCK_K * DK], v[STAGES][BLOCK_K * DV];
    };
    using QTile = SharedTile<T, BLOCK_Q, DK>;
    using KTile = SharedTile<T, BLOCK_K, DK>;
    using VTile = SharedTile<T, BLOCK_K, DV>;

    using ScoreUnits<A>::unit;
    int top;  // the warp's first row in the block
    typename Op::Left query[Q_IN_REGISTERS ? ROW_TILES : 1][Q_IN_REGISTERS ? DK / Op::DEPTH : 1];
    Sum score[ROW_TILES][S_TILES], out[ROW_TILES][O_TILES];
    A largest[ROW_TILES][SIDES], total[ROW_TILES][SIDES];  // of rows; the total is of the lane's columns

    __device__ __forceinline__ explicit FlashForward(double scale)
        : ScoreUnits<A>(scale, PLAIN), top(first_row(threadIdx.x)) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m) {
#pragma unroll
            for (int side = 0; side < SIDES; ++side) largest[m][side] = -math::infinity<A>(), total[m][side] = 0;
#pragma unroll
            for (int n = 0; n < O_TILES; ++n) out[m][n] = Sum{};
        }
    }

    __device__ __forceinline__ static int first_row(unsigned thread) {
        return THREADS > 32 ? int(thread / 32 * WARP_ROWS) : 0;
    }
    // The thread's row of the block in row tile m; its columns are column() and those a constant away.
    __device__ __forceinline__ static int row(int m, int side, unsigned thread = threadIdx.x) {
        return first_row(thread) + int(thread % 32 / 4) + m * Op::ROWS + 8 * side;
    }
    __device__ __forceinline__ static int column(unsigned thread = threadIdx.x) { return int(thread % 4 * 2); }

    __device__ __forceinline__ void load_query_fragments(const QTile& q) {
        if constexpr (Q_IN_REGISTERS) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
                for (int d = 0; d < DK / Op::DEPTH; ++d) query[m][d] = Op::left(q, top + m * Op::ROWS, d * Op::DEPTH);
        }
    }

    __device__ __forceinline__ void multiply_keys(const QTile& q, const KTile& k) {
        const int lane = opaque(Op::lane());
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int n = 0; n < S_TILES; ++n) score[m][n] = Sum{};
#pragma unroll(Q_IN_REGISTERS || sizeof(T) != 8 ? DK : 4)
        for (int d = 0; d < DK / Op::DEPTH; ++d) {
            typename Op::Left left[ROW_TILES];
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m) {
                if constexpr (Q_IN_REGISTERS) left[m] = query[m][d];
                else left[m] = Op::left(q, top + m * Op::ROWS, d * Op::DEPTH, lane);
            }
#pragma unroll
            for (int n = 0; n < S_TILES; n += 2) {
                const typename Op::Right right = Op::right_transposed(k, d * Op::DEPTH, n * 8, lane);
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) Op::multiply(&score[m][n], left[m], right);
            }
        }
    }

    // change(score, m, side, column beyond column()) for each of the lane's scores.
    template <class Change> __device__ __forceinline__ void each_score(const Change& change) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side)
#pragma unroll
                for (int n = 0; n < S_TILES; ++n)
#pragma unroll
                    for (int j = 0; j < 2; ++j) change(score[m][n].value[2 * side + j], m, side, n * 8 + j);
    }

    // Adds elements of mask[rows, cols], which begins where the block and the tile do.
    __device__ __forceinline__ void add_mask(const A* mask, long long row_stride, long long col_stride, int rows,
                                             int cols, unsigned thread) {
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) {
                const int own = row(m, side, thread), left = column(thread);
                const A* next = mask + own * row_stride + left * col_stride;
#pragma unroll
                for (int n = 0; n < S_TILES; ++n) {
#pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        const bool inside = own < rows && left + n * 8 + j < cols;
                        if (inside) score[m][n].value[2 * side + j] += next[j * col_stride];
                    }
                    next += 8 * col_stride;
                }
            }
    }

    // One step of the online softmax: scores become weights relative to the row's maximum so far, and earlier sums are
    // rescaled to it.
    __device__ __forceinline__ void online_softmax() {
        constexpr A FAR = 4096;  // from here on the rounding of `base` would show
        A base[ROW_TILES][SIDES], correction[ROW_TILES][SIDES];
        bool far = false, moved = false;
#pragma unroll
        for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
            for (int side = 0; side < SIDES; ++side) {
                A high = largest[m][side];
#pragma unroll
                for (int n = 0; n < S_TILES; ++n)
#pragma unroll
                    for (int j = 0; j < 2; ++j) high = max_number(high, score[m][n].value[2 * side + j]);
                high = max_number(high, __shfl_xor_sync(ALL_LANES, high, 1));
                high = max_number(high, __shfl_xor_sync(ALL_LANES, high, 2));
                base[m][side] = finite_or_zero(high) * unit;
                correction[m][side] = quick_exp2((largest[m][side] - finite_or_zero(high)) * unit);
                largest[m][side] = high;
                far |= math::abs(base[m][side]) > FAR;
                moved |= correction[m][side] != A(1);
            }
        if (moved) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
                for (int side = 0; side < SIDES; ++side) {
                    total[m][side] *= correction[m][side];
#pragma unroll
                    for (int n = 0; n < O_TILES; ++n)
#pragma unroll
                        for (int j = 0; j < 2; ++j) out[m][n].value[2 * side + j] *= correction[m][side];
                }
        }
        if (far) {
            each_score([&](A& s, int m, int side, int) { s -= finite_or_zero(largest[m][side]); });
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m)
#pragma unroll
                for (int side = 0; side < SIDES; ++side) base[m][side] = 0;
        }
        each_score([&](A& s, int m, int side, int) {
            s = quick_exp2(math::fma(s, unit, -base[m][side]));
            total[m][side] += s;
        });
    }

    __device__ __forceinline__ void add_values(const VTile& v) {
        constexpr int TILES = Op::DEPTH / 8;
        const int lane = opaque(Op::lane());
#pragma unroll
        for (int k = 0; k < BLOCK_K / Op::DEPTH; ++k) {
            typename Op::Left left[ROW_TILES];
#pragma unroll
            for (int m = 0; m < ROW_TILES; ++m) left[m] = Op::left_of(&score[m][k * TILES]);
#pragma unroll
            for (int n = 0; n < O_TILES; n += 2) {
                const typename Op::Right right = Op::right(v, k * Op::DEPTH, n * 8, lane);
#pragma unroll
                for (int m = 0; m < ROW_TILES; ++m) Op::multiply(&out[m][n], left[m], right);
            }
        }
    }
};

// The queries of a block: `rows` from `first_row` on, of one head.
struct FlashBlock {
    long long batch, head, first_row, rows;
};

// A block's copies of tiles of keys and of values, of those before `end_key`.
template <typename T, class Flash, class Variant, class Args> struct FlashLoads {
    typename Flash::Shared* const& shared;
    const Args& args;
    const T *const &k, *const &v;
    const long long& end_key;

    __device__ __forceinline__ void keys(long long key, int stage) const {
        const typename Flash::KTile tile{shared->k[stage]};
        const long long stride = args.k.stride[2];
        copy_rows<Flash::THREADS, Variant::PACKED>(tile, k + key * stride, stride, end_key - key, args.d_k,
                                                   opaque(threadIdx.x));
    }
    __device__ __forceinline__ void values(long long key, int stage) const {
        const typename Flash::VTile tile{shared->v[stage]};
        const long long stride = args.v.stride[2];
        copy_rows<Flash::THREADS, Variant::PACKED>(tile, v + key * stride, stride, end_key - key, args.d_v,
                                                   opaque(threadIdx.x));
    }
};

// Applies scale, soft cap, ALiBi and mask to scores of keys from `key` on.
template <class Variant, class Flash, class Args>
__device__ __forceinline__ void change_scores(Flash& flash, const Args& args, const Band& band, const FlashBlock& block,
                                              long long key, long long end_key) {
    using A = typename Flash::A;
    if constexpr (Flash::PLAIN) {
        if (flash.before != A(1)) flash.each_score([&](A& s, int, int, int) { s *= flash.before; });
    } else {
        const unsigned thread = reload_thread_index();
        const A slope = Variant::HAS_ALIBI_SLOPES ? *args.alibi_slopes.at(block.batch, block.head) : A(0);
        const A cap = A(args.softcap), shift = A(block.first_row + band.shift - key);
        flash.each_score([&](A& s, int m, int side, int beyond) {
            s *= flash.before;
            if (Variant::SOFTCAP) s = capped(s, cap);
            const A distance = shift + A(flash.row(m, side, thread) - flash.column(thread));
            if (Variant::HAS_ALIBI_SLOPES) s -= slope * math::abs(distance - A(beyond));
        });
        if constexpr (Variant::HAS_MASK)
            flash.add_mask(args.mask.at(block.batch, block.head, block.first_row, key), args.mask.stride[2],
                           args.mask.stride[3], int(block.rows), int(min(end_key - key, (long long)Flash::BLOCK_K)),
                           thread);
    }
}

// Masks keys that a row does not attend to. Key `col` of the tile is visible if it exists and its distance from the row
// is within [low, high].
template <class Variant, class Flash>
__device__ __forceinline__ void mask_scores(Flash& flash, const Band& band, const FlashBlock& block, long long key,
                                            long long end_key) {
    using A = typename Flash::A;
    constexpr long long REACH = Flash::BLOCK_Q + Flash::BLOCK_K;
    const long long offset = block.first_row + band.shift - key;
    const int low = int(max(-REACH, min(offset - band.left, REACH)));
    const int high = int(max(-REACH, min(offset + band.right, REACH)));
    const int keys = int(min(end_key - key, REACH));
    const unsigned thread = reload_thread_index();
    flash.each_score([&](A& s, int m, int side, int beyond) {
        const int col = flash.column(thread) + beyond, distance = col - flash.row(m, side, thread);
        if (col >= keys || (Variant::BAND && (distance < low || distance > high))) s = -math::infinity<A>();
    });
}

// Stores y and lse: sums of weighted values over sums of weights.
template <typename T, class Variant, class Flash, class Args>
__device__ __forceinline__ void store_rows(const Flash& flash, const Args& args, const FlashBlock& block) {
    using A = typename Flash::A;
    const int cols = int(args.d_v);
#pragma unroll
    for (int m = 0; m < Flash::ROW_TILES; ++m)
#pragma unroll
        for (int side = 0; side < Flash::SIDES; ++side) {
            A total = flash.total[m][side];
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            const int row = flash.row(m, side);
            if (row >= block.rows) continue;
            const bool none = total == A(0);
            const A inverse = A(1) / total;
            T* const y = args.y.at(block.batch, block.head, block.first_row + row);
#pragma unroll
            for (int n = 0; n < Flash::O_TILES; ++n) {
                const A* const value = flash.out[m][n].value + 2 * side;
                const int col = n * 8 + flash.column();
                const Pack<T, 2> both = {T(none ? A(0) : value[0] * inverse), T(none ? A(0) : value[1] * inverse)};
                if (Variant::PACKED) {
                    if (col < cols) both.store(y + col);
                } else {
                    if (col < cols) y[col] = both.lane[0];
                    if (col + 1 < cols) y[col + 1] = both.lane[1];
                }
            }
            const A lse = none ? -math::infinity<A>() : flash.largest[m][side] * flash.after + math::log(total);
            if (Flash::Op::lane() % 4 == 0) *args.lse.at(block.batch, block.head, block.first_row + row) = lse;
        }
}

// y = softmax(scale q k^T, changed as Variant says) v and lse, the natural logarithm of the softmax' denominator. Rows
// whose scores are all excluded or -inf have y = 0 and lse = -inf. Key and value head of head h is h / (num_heads /
// num_kv_heads).
//
// Block -> a batch, a head and BLOCK_Q queries, those with most keys first; warp -> its share of these rows, all
// columns; lane
// -> the elements of Mma's sums. Memory traffic: each query and output once, keys and values of the tiles in the
// block's band once per block, 16 bytes a lane if PACKED. Keys that are masked for all of a block's rows are not read;
// one that is masked for some has weight 0 there, and NaN or infinity in its value then gives NaN.
template <typename T, class Schedule, class Variant, class Args> __device__ void flash_sdpa_main(const Args& args) {
    using Flash = FlashForward<T, Schedule, Variant>;
    using A = typename Flash::A;
    using Shared = typename Flash::Shared;
    constexpr int BLOCK_Q = Flash::BLOCK_Q, BLOCK_K = Flash::BLOCK_K, STAGES = Flash::STAGES;
    DYN_SHARED(Shared, shared);
    static_assert(reserves(sizeof(Shared)), "the launch reserves Shared");

    const long long queries = args.query_len, tiles = (queries + BLOCK_Q - 1) / BLOCK_Q;
    if (blockIdx.x >= tiles * args.num_heads * args.batch_size) return;
    const unsigned which = blockIdx.x / unsigned(tiles), heads = unsigned(args.num_heads);
    const long long batch = which / heads, head = which % heads, kv_head = head / (heads / unsigned(args.num_kv_heads));
    const Band band = flash_band<Variant>(args);
    const long long nth = blockIdx.x % unsigned(tiles);
    const long long first_row = (Variant::BAND && band.right < OPEN ? tiles - 1 - nth : nth) * BLOCK_Q;
    const FlashBlock block = {batch, head, first_row, min((long long)BLOCK_Q, queries - first_row)};
    const long long first_key = band.first(first_row), end_key = band.end(first_row + block.rows - 1);

    const T* const k = args.k.at(batch, kv_head);
    const T* const v = args.v.at(batch, kv_head);
    const FlashLoads<T, Flash, Variant, Args> load = {shared, args, k, v, end_key};

    Flash flash(args.scale);
    // The keys that all rows attend to; [first_key, end_key) are those of any row.
    const long long common_first = band.first(first_row + block.rows - 1), common_end = band.end(first_row);
    const typename Flash::QTile q{shared->q};
    if (first_key < end_key) {
        copy_rows<Flash::THREADS, Variant::PACKED>(q, args.q.at(batch, head, first_row), args.q.stride[2], block.rows,
                                                   args.d_k);
        load.keys(first_key, 0);
        if (STAGES == 2) load.values(first_key, 0);
        cp_async_commit_group();
        if (Flash::Q_IN_REGISTERS) {
            cp_async_wait_group<0>();
            __syncthreads();  // queries have arrived
            flash.load_query_fragments(q);
        }
    }
    int stage = 0;
    for (long long key = first_key; key < end_key; key += BLOCK_K) {
        const bool more = key + BLOCK_K < end_key;
        const int other = STAGES == 2 ? stage ^ 1 : 0;
        cp_async_wait_group<0>();
        __syncthreads();  // the copies have arrived, and the other buffer is free
        if (STAGES == 2) {
            if (more) load.keys(key + BLOCK_K, other), load.values(key + BLOCK_K, other);
        } else {
            load.values(key, 0);
        }
        cp_async_commit_group();
        flash.multiply_keys(q, {shared->k[stage]});
        if (STAGES == 1) {
            cp_async_wait_group<0>();
            __syncthreads();  // the values have arrived, and the keys are no longer needed
            if (more) load.keys(key + BLOCK_K, 0);
            cp_async_commit_group();
        }
        change_scores<Variant>(flash, args, band, block, key, end_key);
        if (key < common_first || key + BLOCK_K > common_end) mask_scores<Variant>(flash, band, block, key, end_key);
        flash.online_softmax();
        flash.add_values({shared->v[stage]});
        stage = other;
    }
    store_rows<T, Variant>(flash, args, block);
}

}  // namespace baracuda
