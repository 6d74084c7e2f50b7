// Flash attention's backward pass: weights are recomputed from lse, and nothing of size queries x keys is in memory.
//   delta = rowsum(dy y)   P = exp(score - lse)   dS = P (dy v^T - delta) slope of softcap
//   dq = scale dS k        dk = scale dS^T q      dv = P^T dy
// Three launches: delta, dkdv, dq. No atomics: one block computes each sum, in a fixed order. P and dS are
// rounded to 16-bit types before they are multiplied, lse and delta are not. Where a query does not attend to a key, P
// and dS are 0; as in any product of matrices, NaN or infinity in q, k or dy times such a 0 gives NaN. A tile that is
// masked for all of a block's rows is not read.
#pragma once

#include <baracuda/attention/scores.cuh>
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>
#include <baracuda/strided.cuh>

namespace baracuda {

constexpr int DELTA_LANES = 8;

// Block -> THREADS / DELTA_LANES rows of [batch, head, query], in order; DELTA_LANES neighbouring lanes -> a row.
// Reads y and dy once, 16 bytes at a time where they are packed, and writes delta.
template <typename T, class Schedule, class Variant, class Args>
__device__ void flash_sdpa_backward_delta(const Args& args) {
    using A = acc_of<T>;
    constexpr int N = 16 / int(sizeof(T)),
                  ROWS = Schedule::THREADS / DELTA_LANES;  // the same order of additions for all strides
    const int lane = threadIdx.x % DELTA_LANES;
    const long long row = (long long)(blockIdx.x) * ROWS + threadIdx.x / DELTA_LANES;
    const bool inside = row < args.batch_size * args.num_heads * args.query_len;
    A sum = 0;
    if (inside) {
        const long long head = row / args.query_len, query = row % args.query_len;
        const T* y = args.y.at(head / args.num_heads, head % args.num_heads, query);
        const T* dy = args.dy.at(head / args.num_heads, head % args.num_heads, query);
#pragma unroll 4
        for (int col = lane * N; col < Variant::DV; col += DELTA_LANES * N) {
            if (col >= args.d_v) break;
            Pack<T, N> of_y, of_dy;
            if (Variant::PACKED) {
                of_y.load(y + col);
                of_dy.load(dy + col);
            }
#pragma unroll
            for (int i = 0; i < N; ++i) {
                if (!Variant::PACKED) {
                    if (col + i >= args.d_v) break;
                    of_y.lane[i] = y[col + i];
                    of_dy.lane[i] = dy[col + i];
                }
                sum = math::fma(A(of_y.lane[i]), A(of_dy.lane[i]), sum);
            }
        }
    }
#pragma unroll
    for (int step = DELTA_LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
    if (inside && lane == 0) args.delta[row] = sum;
}

// The shape of a block's work. It owns OWN rows (keys for dk and dv, queries for dq), an equal share for each warp, and
// the rows of the other kind are streamed, STREAM at a time, through STAGES buffers. SUM_K: the gradient of its rows
// of k, or of q, is wanted. SUM_V: that of v.
template <bool OWN_KEYS_, int THREADS_, int OWN_, int STREAM_, int STAGES_, bool SUM_K_, bool SUM_V_>
struct BackwardShape {
    static constexpr bool OWN_KEYS = OWN_KEYS_, SUM_K = SUM_K_, SUM_V = SUM_V_;
    static constexpr int THREADS = THREADS_, OWN = OWN_, STREAM = STREAM_, STAGES = STAGES_;
    static_assert(STAGES == 1 || STAGES == 2, "double buffering at most");
    static_assert(STREAM % 16 == 0 && STREAM <= THREADS, "a fragment is 16 columns; a thread copies one lse");
};

template <bool FIRST, class X, class Y> __device__ const auto& pick(const X& x, const Y& y) {
    if constexpr (FIRST) return x;
    else return y;
}

// One block's walk. The side of q and k is called `k` here, with DK columns, that of v and dy is called `v`, with DV.
template <typename T, class Variant, class Shape, class Args> struct BackwardWalk {
    using A = acc_of<T>;
    using M = Mma<T>;
    using Sum = typename M::Sum;
    using Left = typename M::Left;
    using Right = typename M::Right;
    static constexpr bool OWN_KEYS = Shape::OWN_KEYS, SUM_K = Shape::SUM_K, SUM_V = Shape::SUM_V;
    static constexpr bool PACKED = Variant::PACKED;
    static constexpr int DK = Variant::DK, DV = Variant::DV, THREADS = Shape::THREADS;
    static constexpr int OWN = Shape::OWN, STREAM = Shape::STREAM, STAGES = Shape::STAGES;
    static constexpr int PARTS = OWN / (THREADS / 32 * M::ROWS);  // of a warp's own rows, one above the other
    static_assert(PARTS * (THREADS / 32) * M::ROWS == OWN, "a warp owns whole fragments");
    static constexpr int STATISTICS = OWN_KEYS ? 2 * STAGES * STREAM : 0;
    static_assert(reserves((OWN + STAGES * STREAM) * (DK + DV) * sizeof(T) + STATISTICS * sizeof(A)),
                  "the launch reserves what is laid out below");
    static constexpr int LANE_ROWS = M::VALUES / 2;  // rows of a part of which a lane has values

    // Columns whose scores a warp has in registers at a time: as many as the sums leave room for; more would spill.
    static constexpr bool EXTRAS = Variant::SOFTCAP || Variant::HAS_MASK || Variant::HAS_ALIBI_SLOPES;
    static constexpr int WORDS = PARTS * M::VALUES * int(sizeof(A)) / 4;  // of 8 columns
    static constexpr int SUMS = ((SUM_K ? DK : 0) + (SUM_V ? DV : 0)) / 8 * WORDS, SCORES = (SUM_K ? 2 : 1) * WORDS;
    static constexpr int ROOM = sizeof(T) == 2 && !EXTRAS ? 160 : 144;
    static constexpr int STEP = STREAM % 64 == 0 && SUMS + 8 * SCORES <= 144    ? 64
                                : STREAM % 32 == 0 && SUMS + 4 * SCORES <= ROOM ? 32
                                                                                : 16;
    static constexpr int TILES = STEP / 8;
    using Scores = Sum[PARTS][TILES];
    static constexpr double LOG2E = 1.4426950408889634;

    const Args& args;
    Band band;
    SharedTile<T, OWN, DK> own_k;
    SharedTile<T, OWN, DV> own_v;
    T *stream_k, *stream_v;  // STAGES tiles each
    A* statistics;           // for each stage lse of its queries and then delta, if the block owns keys
    int batch, own_head, own_tile, warp_row;
    A lse[PARTS][LANE_ROWS], delta[PARTS][LANE_ROWS];  // of the lane's rows, if the block owns queries
    Sum sum_k[PARTS][SUM_K ? DK / 8 : 1], sum_v[PARTS][SUM_V ? DV / 8 : 1];

    __device__ BackwardWalk(const Args& given, unsigned char* shared, int of_batch, int head, int tile)
        : args(given),
          band(Band::of(given.query_len, given.key_len, given.bottom_right != 0, given.is_causal != 0,
                        given.window_left, given.window_right)),
          own_k{reinterpret_cast<T*>(shared)},
          own_v{own_k.data + OWN * DK},
          stream_k(own_v.data + OWN * DV),
          stream_v(stream_k + STAGES * STREAM * DK),
          statistics(reinterpret_cast<A*>(stream_v + STAGES * STREAM * DV)),
          batch(of_batch),
          own_head(head),
          own_tile(tile),
          warp_row(int(threadIdx.x) / 32 * PARTS * M::ROWS) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (Sum& sum : sum_k[part]) sum = Sum{};
#pragma unroll
            for (Sum& sum : sum_v[part]) sum = Sum{};
        }
    }

    __device__ long long own_first() const { return (long long)(own_tile)*OWN; }
    __device__ long long own_len() const { return OWN_KEYS ? args.key_len : args.query_len; }
    __device__ long long stream_len() const { return OWN_KEYS ? args.query_len : args.key_len; }
    __device__ long long own_row(int part, int i) const { return own_first() + warp_row + part * M::ROWS + M::row(i); }
    __device__ SharedTile<T, STREAM, DK> tile_k(int stage) const { return {stream_k + stage * STREAM * DK}; }
    __device__ SharedTile<T, STREAM, DV> tile_v(int stage) const { return {stream_v + stage * STREAM * DV}; }

    // An own row attends to, or is attended by, rows [first, end) of the other kind; both bounds are monotonic.
    __device__ long long first_visible(long long own) const {
        if constexpr (!Variant::BAND) return 0;
        else return OWN_KEYS ? band.first_query(own) : band.first(own);
    }
    __device__ long long end_visible(long long own) const {
        if constexpr (!Variant::BAND) return stream_len();
        else return OWN_KEYS ? band.end_query(own, stream_len()) : band.end(own);
    }
    // The index of row `met` of the other kind in the tile that begins at `first`, clamped to [0, STREAM].
    __device__ static int within(long long met, long long first) {
        return int(max(0ll, min((long long)STREAM, met - first)));
    }

    __device__ void load_own() const {
        const long long first = own_first(), rows = own_len() - first;
        const auto& k = pick<OWN_KEYS>(args.k, args.q);
        const auto& v = pick<OWN_KEYS>(args.v, args.dy);
        copy_rows<THREADS, PACKED>(own_k, k.at(batch, own_head, first), k.stride[2], rows, args.d_k);
        if constexpr (SUM_K)
            copy_rows<THREADS, PACKED>(own_v, v.at(batch, own_head, first), v.stride[2], rows, args.d_v);
    }
    // The tile of rows of the other kind, of head `head`, that begins at row `first`.
    __device__ void load_stream(int stage, int head, long long first) const {
        const long long rows = stream_len() - first;
        const auto& k = pick<OWN_KEYS>(args.q, args.k);
        const auto& v = pick<OWN_KEYS>(args.dy, args.v);
        copy_rows<THREADS, PACKED>(tile_k(stage), k.at(batch, head, first), k.stride[2], rows, args.d_k);
        copy_rows<THREADS, PACKED>(tile_v(stage), v.at(batch, head, first), v.stride[2], rows, args.d_v);
        const int i = threadIdx.x;
        if (OWN_KEYS && i < STREAM) {
            const long long row = first + (i < rows ? i : 0);
            const int bytes = i < rows ? int(sizeof(A)) : 0;
            A* to = statistics + stage * 2 * STREAM + i;
            cp_async_ca<sizeof(A)>(to, args.lse.at(batch, head, row), bytes);
            cp_async_ca<sizeof(A)>(to + STREAM, delta_of(head, row), bytes);
        }
    }
    __device__ const A* delta_of(int head, long long query) const {
        return args.delta + (batch * args.num_heads + head) * args.query_len + query;
    }

    // In base 2, as exponents are computed. A query that attends to nothing has lse = -inf and weights of 0.
    __device__ static A in_base_2(A natural) {
        return natural == -math::infinity<A>() ? math::infinity<A>() : natural * A(1.4426950408889634);
    }
    __device__ void read_statistics() {
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int i = 0; i < LANE_ROWS; ++i) {
                const long long row = own_row(part, 2 * i);
                const bool inside = row < own_len();
                lse[part][i] = inside ? in_base_2(*args.lse.at(batch, own_head, row)) : math::infinity<A>();
                delta[part][i] = inside ? *delta_of(own_head, row) : A(0);
            }
    }

    // sums[own, c] += own[own, :] stream[col + c, :] for the warp's rows and STEP columns.
    template <int D>
    __device__ void add_scores(Scores& sums, SharedTile<T, OWN, D> own, SharedTile<T, STREAM, D> stream,
                               int col) const {
#pragma unroll 4
        for (int k = 0; k < D; k += M::DEPTH) {
            Left left[PARTS];
#pragma unroll
            for (int part = 0; part < PARTS; ++part) left[part] = M::left(own, warp_row + part * M::ROWS, k);
#pragma unroll
            for (int n = 0; n < TILES; n += 2) {
                const Right right = M::right_transposed(stream, k, col + n * 8);
#pragma unroll
                for (int part = 0; part < PARTS; ++part) M::multiply(&sums[part][n], left[part], right);
            }
        }
    }
    // sums[own, :] += factors[own, c] stream[col + c, :].
    template <int D>
    __device__ static void add_gradients(Sum (&sums)[PARTS][D / 8], const Scores& factors,
                                         SharedTile<T, STREAM, D> stream, int col) {
#pragma unroll
        for (int c = 0; c < STEP; c += M::DEPTH) {
            Left left[PARTS];
#pragma unroll
            for (int part = 0; part < PARTS; ++part) left[part] = M::left_of(&factors[part][c / 8]);
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                const Right right = M::right(stream, col + c, n * 8);
#pragma unroll
                for (int part = 0; part < PARTS; ++part) M::multiply(&sums[part][n], left[part], right);
            }
        }
    }

    // What ALiBi and a mask add to the exponents of a tile.
    struct Bias {
        A slope, distance;  // ALiBi: the slope, and the distance of the tile's first query from its first key
        const A* mask;
        int own_last, last;
    };
    __device__ Bias bias_of(int stream_head, long long first) const {
        const long long query = OWN_KEYS ? first : own_first(), key = OWN_KEYS ? own_first() : first;
        const int head = OWN_KEYS ? stream_head : own_head;
        Bias bias = {};
        if constexpr (Variant::HAS_ALIBI_SLOPES) {
            bias.slope = *args.alibi_slopes.at(batch, head) * A(LOG2E);
            bias.distance = A(query + band.shift - key);
        }
        if constexpr (Variant::HAS_MASK) {
            bias.mask = args.mask.at(batch, head, query, key);
            bias.own_last = int(min((long long)OWN, own_len() - own_first())) - 1;
            bias.last = int(min((long long)STREAM, stream_len() - first)) - 1;
        }
        return bias;
    }
    __device__ void add_bias(A& exponent, const Bias& bias, int own, int other) const {
        if constexpr (Variant::HAS_ALIBI_SLOPES)
            exponent -= bias.slope * math::abs(bias.distance + A(OWN_KEYS ? other - own : own - other));
        if constexpr (Variant::HAS_MASK) {  // beyond the last row any element will do
            const int x = min(own, bias.own_last), y = min(other, bias.last);
            exponent += bias.mask[(OWN_KEYS ? y : x) * args.mask.stride[2] + (OWN_KEYS ? x : y) * args.mask.stride[3]] *
                        A(LOG2E);
        }
    }

    // Of two queries in a streamed tile.
    __device__ static void load_statistics(Pack<A, 2>& of_lse, Pack<A, 2>& of_delta, const A* at) {
        of_lse.load(at);
        of_lse.lane[0] = in_base_2(of_lse.lane[0]);
        of_lse.lane[1] = in_base_2(of_lse.lane[1]);
        if constexpr (SUM_K) of_delta.load(at + STREAM);
    }

    // From q k^T and dy v^T to P and dS, for the STEP columns from `col` on of the tile of head `stream_head` that
    // begins at row `first`. EDGE: some of these columns are masked for some rows of the warp.
    template <bool EDGE>
    __device__ void weigh(Scores& score, Scores& grad, int stage, int stream_head, long long first, int col) const {
        const A scale = A(args.scale), softcap = A(args.softcap), factor = A(args.scale * LOG2E);
        const Bias bias = bias_of(stream_head, first);
        int visible_from[PARTS][LANE_ROWS];
        unsigned span[PARTS]
                     [LANE_ROWS];  // the lane's rows attend to rows [visible_from, visible_from + span) of the tile
        if constexpr (EDGE) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
#pragma unroll
                for (int i = 0; i < LANE_ROWS; ++i) {
                    const long long row = own_row(part, 2 * i);
                    visible_from[part][i] = within(first_visible(row), first);
                    span[part][i] = unsigned(max(0, within(end_visible(row), first) - visible_from[part][i]));
                }
        }
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
            Pack<A, 2> of_lse, of_delta;
            if constexpr (OWN_KEYS)
                load_statistics(of_lse, of_delta, statistics + stage * 2 * STREAM + col + n * 8 + M::col(0));
#pragma unroll
            for (int part = 0; part < PARTS; ++part)
#pragma unroll
                for (int i = 0; i < M::VALUES; ++i) {
                    const int own = warp_row + part * M::ROWS + M::row(i), other = col + n * 8 + M::col(i);
                    const A base = OWN_KEYS ? of_lse.lane[i % 2] : lse[part][i / 2];
                    A& weight = score[part][n].value[i];
                    A exponent, cap_slope = 1;
                    if constexpr (Variant::SOFTCAP) {
                        const A soft = capped(weight * scale, softcap);
                        cap_slope = capped_slope(soft, softcap);
                        exponent = math::fma(soft, A(LOG2E), -base);
                    } else {
                        exponent = math::fma(weight, factor, -base);
                    }
                    add_bias(exponent, bias, own, other);
                    const bool visible = !EDGE || unsigned(other - visible_from[part][i / 2]) < span[part][i / 2];
                    weight = visible ? math::exp2(exponent) : A(0);
                    if constexpr (SUM_K) {
                        const A mean = OWN_KEYS ? of_delta.lane[i % 2] : delta[part][i / 2];
                        A& change = grad[part][n].value[i];
                        change = visible ? weight * (change - mean) * cap_slope : A(0);
                    }
                }
        }
    }

    // Adds the products of the tile in `stage` to the warp's sums.
    __device__ void work(int stage, int head, long long first) {
        const long long top = own_first() + warp_row, low = min(top + PARTS * M::ROWS, own_len()) - 1;
        if (low < top) return;  // the warp has no rows
        const int some_first = within(first_visible(top), first), all_first = within(first_visible(low), first);
        const int all_end = within(end_visible(top), first), some_end = within(end_visible(low), first);
#pragma unroll 1
        for (int col = some_first / STEP * STEP; col < some_end; col += STEP) {
            Scores score = {}, grad = {};
            add_scores(score, own_k, tile_k(stage), col);
            if constexpr (SUM_K) add_scores(grad, own_v, tile_v(stage), col);
            if (col < all_first || col + STEP > all_end) weigh<true>(score, grad, stage, head, first, col);
            else weigh<false>(score, grad, stage, head, first, col);
            if constexpr (SUM_V) add_gradients<DV>(sum_v, score, tile_v(stage), col);
            if constexpr (SUM_K) add_gradients<DK>(sum_k, grad, tile_k(stage), col);
        }
    }

    // Loops over the visible tiles of `heads` heads from `head` on, prefetching the next tile.
    __device__ void walk(int head, int heads) {
        const long long last = min(own_first() + OWN, own_len()) - 1;
        const int begin = int(first_visible(own_first()) / STREAM),
                  end = int((end_visible(last) + STREAM - 1) / STREAM);
        const int end_head = head + heads;
        if (begin >= end || heads == 0) return;
        if constexpr (!OWN_KEYS) read_statistics();
        load_own();
        load_stream(0, head, (long long)(begin)*STREAM);
        cp_async_commit_group();
        int tile = begin, stage = 0;
#pragma unroll 1
        while (head < end_head) {
            const bool wraps = tile + 1 == end;
            const int next_tile = wraps ? begin : tile + 1, next_head = head + wraps;
            const bool more = next_head < end_head;
            cp_async_wait_group<0>();
            __syncthreads();  // this tile has arrived, and all threads are done with the one before
            if (STAGES == 2 && more) load_stream(stage ^ 1, next_head, (long long)(next_tile)*STREAM);
            cp_async_commit_group();
            work(stage, head, (long long)(tile)*STREAM);
            if (STAGES == 1 && more) {
                __syncthreads();  // all are done with this tile
                load_stream(0, next_head, (long long)(next_tile)*STREAM);
                cp_async_commit_group();
            }
            if (STAGES == 2) stage ^= 1;
            tile = next_tile;
            head = next_head;
        }
    }

    // The warp's rows of a gradient: two neighbours at a time where the tensor is packed.
    template <int COUNT>
    __device__ void store(const Strided<T, 4>& to, const Sum (&sums)[PARTS][COUNT], A factor, long long cols) const {
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int i = 0; i < M::VALUES; i += 2) {
                const long long row = own_row(part, i);
                if (row >= own_len()) continue;
                T* at = to.at(batch, own_head, row) + M::col(0);
#pragma unroll
                for (int n = 0; n < COUNT; ++n) {
                    const Sum& sum = sums[part][n];
                    const Pack<T, 2> two = {T(sum.value[i] * factor), T(sum.value[i + 1] * factor)};
                    const int col = n * 8 + M::col(0);
                    if constexpr (PACKED) {
                        if (col < cols) two.store(at + n * 8);
                    } else {
                        if (col < cols) at[n * 8] = two.lane[0];
                        if (col + 1 < cols) at[n * 8 + 1] = two.lane[1];
                    }
                }
            }
    }
};

// Gradients of a block's keys, over all queries of the heads that share them, in order of heads and then of queries.
template <typename T, class Schedule, class Variant, bool SUM_K, bool SUM_V, class Args>
__device__ void backward_of_keys(const Args& args, unsigned char* shared, int block) {
    constexpr int OWN = Schedule::KV_BLOCK_K;
    constexpr int STREAM = Schedule::KV_BLOCK_Q, STAGES = Schedule::KV_STAGES;
    using Shape = BackwardShape<true, Schedule::THREADS, OWN, STREAM, STAGES, SUM_K, SUM_V>;
    const int tiles = int((args.key_len + OWN - 1) / OWN), heads = int(args.num_kv_heads);
    const int head = block / tiles % heads, group = int(args.num_heads) / heads;
    BackwardWalk<T, Variant, Shape, Args> walk(args, shared, block / tiles / heads, head, block % tiles);
    walk.walk(head * group, group);
    if constexpr (SUM_K) walk.store(args.dk, walk.sum_k, acc_of<T>(args.scale), args.d_k);
    if constexpr (SUM_V) walk.store(args.dv, walk.sum_v, acc_of<T>(1), args.d_v);
}

// Block -> (batch, key and value head, tile of KV_BLOCK_K keys), the tile fastest, so that neighbours share queries in
// the cache, and the first tile first, which most queries attend to if causal; warp -> a share of the keys.
// KV_PARTS = 2: even blocks write dk and odd ones dv, because the sums of both do not fit into registers. Reads k and v
// once, and for each tile of keys q, dy, lse and delta of the queries that attend to it.
template <typename T, class Schedule, class Variant, class Args>
__device__ void flash_sdpa_backward_dkdv(const Args& args) {
    DYN_SHARED(unsigned char, shared);
    static_assert(Schedule::KV_PARTS == 1 || Schedule::KV_PARTS == 2, "dk and dv together or apart");
    if constexpr (Schedule::KV_PARTS == 1) {
        backward_of_keys<T, Schedule, Variant, true, true>(args, shared, int(blockIdx.x));
    } else if (blockIdx.x % 2 == 0) {
        backward_of_keys<T, Schedule, Variant, true, false>(args, shared, int(blockIdx.x / 2));
    } else {
        backward_of_keys<T, Schedule, Variant, false, true>(args, shared, int(blockIdx.x / 2));
    }
}

// Block -> (batch, head, tile of Q_BLOCK_Q queries), the tile fastest and from the last on, which has most keys if the
// problem is causal; warp -> a share of the queries. Reads q, dy, lse and delta once, and for each tile of queries the
// rows of k and v that it attends to.
template <typename T, class Schedule, class Variant, class Args>
__device__ void flash_sdpa_backward_dq(const Args& args) {
    DYN_SHARED(unsigned char, shared);
    constexpr int OWN = Schedule::Q_BLOCK_Q;
    using Shape = BackwardShape<false, Schedule::THREADS, OWN, Schedule::Q_BLOCK_K, Schedule::Q_STAGES, true, false>;
    const int tiles = int((args.query_len + OWN - 1) / OWN), heads = int(args.num_heads);
    const int block = int(blockIdx.x), tile = tiles - 1 - block % tiles, head = block / tiles % heads;
    BackwardWalk<T, Variant, Shape, Args> walk(args, shared, block / tiles / heads, head, tile);
    walk.walk(head / (heads / int(args.num_kv_heads)), 1);
    walk.store(args.dq, walk.sum_k, acc_of<T>(args.scale), args.d_k);
}

}  // namespace baracuda
