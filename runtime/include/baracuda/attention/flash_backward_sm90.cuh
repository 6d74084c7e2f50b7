// Flash attention's backward pass of 16-bit types for sm_90a; flash_backward.cuh has the formulas.
//
// Three launches: delta, dkdv, dq. In the last two
//
// block -> tiles of OWN rows of one head, persistent: a fixed list (see FlashTileScheduler), or by ticket (see
// SERIAL_DQ)
// warpgroup 0 -> the producer: its first thread issues all TMA loads; with SERIAL_DQ, two more threads add to dq
// warpgroups 1 and 2 -> consumers, half of the own rows each: scores and sums stay in registers, in the layout of wgmma
//
// Own rows are keys (dkdv) or queries (dq); the rows of the other kind are streamed, STREAM at a time, from the last
// on. The rows of every result are own rows, so that P and dS go from one product to the next in registers: seven
// products, as S and dP are computed twice. With SERIAL_DQ (see flash_backward_dq_sm90.cuh) dkdv computes dq as well,
// and five are enough; adding up dq in order pays from 128 columns on. In two parts dkdv computes all of dk and then
// all of dv, as registers hold the sums of only one of them beyond 128 columns: eight products. Sums have a fixed
// order: results are bit-identical from run to run. P and dS are rounded to 16-bit types before they are multiplied;
// lse and delta are not.
//
// Rows of q, k, v and dy are at multiples of 16 bytes, so are those of the others, whose columns are multiples of 8.
// Lengths are at most 2^29, and none is 0: tensor maps know no empty tensor.
#pragma once

#include <baracuda/attention/flash_backward_dq_sm90.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {

// The layout of shared memory. The side of q and k is called `k` here, with DK columns, that of v and dy is called `v`,
// with DV; columns are in panels of 64, those beyond d_k and d_v are zeros. SUM_K: dk or dq is computed, SUM_V: dv is.
// Dynamic shared memory: 1280 + 128 (ceil(DK / 64) + ceil(DV / 64)) (OWN + STAGES STREAM), with OWN_KEYS 8 STAGES
// STREAM more, and with SERIAL_DQ 4 OWN STREAM + 8 STREAM DK, or 4 STREAM DK if STREAM is more than 64; in two parts
// 128 ceil(DV / 64) STREAM less.
template <bool OWN_KEYS_, bool SUM_K_, bool SUM_V_, bool SERIAL_DQ_, int OWN_, int STREAM_, int STAGES_, class Schedule,
          class Variant>
struct Sm90BackwardShape {
    static constexpr bool OWN_KEYS = OWN_KEYS_, SUM_K = SUM_K_, SUM_V = SUM_V_, SERIAL_DQ = SERIAL_DQ_;
    static constexpr bool BAND = Variant::BAND;
    static constexpr int OWN = OWN_, STREAM = STREAM_, STAGES = STAGES_;
    static constexpr int UNIT = SERIAL_DQ ? STREAM : 64;   // queries, and rows of a box of streamed tiles
    static constexpr int BLOCK_Q = OWN, BLOCK_K = STREAM;  // as FlashTileScheduler and FlashBand call them
    static constexpr int DK = Variant::DK, DV = Variant::DV, K_PANELS = (DK + 63) / 64, V_PANELS = (DV + 63) / 64;
    static constexpr int CONSUMERS = 2, CONSUMER_WARPS = 4 * CONSUMERS;

    static constexpr bool PARTS = Schedule::KV_PARTS == 2;
    // Whether a warpgroup skips tiles that its rows do not attend to; dq needs both warpgroups.
    static constexpr bool SKIPS = BAND && !SERIAL_DQ;
    // Elements of a thread's fragments of sums and of weights; 1 of those that are not computed.
    static constexpr int OF_SUM_K = SUM_K ? DK / 2 : 1, OF_SUM_V = SUM_V ? DV / 2 : 1,
                         OF_WEIGHTS = SUM_V ? STREAM / 4 : 1;
    // Whether lse and delta of a tile are prefetched to registers while its products run, in the order of the fragment:
    // with serialised dQ or a soft cap there are no registers for it; causal problems with serialised dQ take 4 %
    // longer.
    static constexpr bool INTERLEAVED = !SERIAL_DQ && !Variant::SOFTCAP, PREFETCH = OWN_KEYS && INTERLEAVED;
    // In two parts, the streamed operand of dP alone has one buffer: it is released early, and there is no room for
    // two.
    static constexpr bool SINGLE_STAGE_V = PARTS && !SUM_V;

    static_assert(DK % 32 == 0 && DV % 32 == 0 && (PARTS ? DK <= 256 && DV <= 256 : DK <= 128 && DV <= 128),
                  "columns are multiples of 32, 128 at most, 256 in two parts");
    static_assert(SUM_K || SUM_V, "something is made");
    static_assert(Schedule::THREADS == 128 * (CONSUMERS + 1) && OWN == 64 * CONSUMERS, "64 rows a warpgroup");
    static_assert(STREAM % UNIT == 0, "boxes have a unit's rows");
    static_assert(!SERIAL_DQ || (OWN_KEYS && STREAM % 16 == 0 && STAGES == 2 && DK == 128), "64 columns a warpgroup");
    static_assert(STAGES >= 2, "the products of one tile start while those of the tile before end");
    static_assert(Variant::PACKED && !Variant::HAS_MASK && !Variant::HAS_ALIBI_SLOPES, "left to the portable kernel");

    // Registers per thread after setmaxnreg, in steps of 8.
    static constexpr int CONSUMER_REGISTERS = PARTS ? 232 : 240, PRODUCER_REGISTERS = PARTS ? 40 : 24;

    static constexpr unsigned OWN_PANEL = OWN * 128, STREAM_PANEL = STREAM * 128;  // bytes
    static constexpr unsigned OWN_V = K_PANELS * OWN_PANEL, OWN_BYTES = OWN_V + (SUM_K ? V_PANELS * OWN_PANEL : 0);
    static constexpr unsigned K_BYTES = K_PANELS * STREAM_PANEL, V_BYTES = V_PANELS * STREAM_PANEL;
    static constexpr unsigned STREAM_BYTES = SINGLE_STAGE_V ? K_BYTES : K_BYTES + V_BYTES;  // of a stage
    static constexpr unsigned SINGLE_V = OWN_BYTES + STAGES * STREAM_BYTES;
    static constexpr unsigned STATISTICS_BYTES = OWN_KEYS ? 8 * STREAM : 0;  // lse and delta of a tile's queries
    // With SERIAL_DQ: dS of a tile and its part of dq, double-buffered as streamed tiles are, except dq of wide tiles.
    static constexpr bool STAGED_TWICE = STREAM <= 64;
    // Steps of dv's product that overlap with computing dS; wide tiles have no registers for more weights meanwhile.
    static constexpr int OVERLAPPED_STEPS = SERIAL_DQ && STREAM > 64 ? 1 : STREAM / 16;
    static constexpr unsigned DS_PANEL = OWN * 32, DS_BYTES = SERIAL_DQ ? STREAM / 16 * DS_PANEL : 0;
    static constexpr unsigned STAGED_BYTES = SERIAL_DQ ? STREAM * DK * 4 : 0;
    static constexpr unsigned DS = SINGLE_V + (SINGLE_STAGE_V ? V_BYTES : 0), STAGED = DS + 2 * DS_BYTES;
    static constexpr unsigned STATISTICS = STAGED + (STAGED_TWICE ? 2 : 1) * STAGED_BYTES;
    static constexpr unsigned BARRIERS = STATISTICS + STAGES * STATISTICS_BYTES;
    static constexpr unsigned WORK_TILE = BARRIERS + 8 * (2 + 2 * STAGES + 8 + 2);
    static constexpr int OWN_USERS = 32 * CONSUMER_WARPS + (SERIAL_DQ ? 2 : 0);  // each lane reads the FlashTile
    static constexpr int STREAM_USERS = CONSUMER_WARPS * (OWN_KEYS ? 32 : 1);    // and the statistics of a tile
};

// The shared memory of a block. Barriers: `full` when a tile has arrived, `empty` when all consumers have released it.
template <class Shape> struct Sm90BackwardShared {
    unsigned base;

    __device__ __forceinline__ FlashTile& work_tile() const {  // has the lifetime of the own rows
        return *static_cast<FlashTile*>(__cvta_shared_to_generic(base + Shape::WORK_TILE));
    }
    __device__ __forceinline__ unsigned own_k() const { return base; }
    __device__ __forceinline__ unsigned own_v() const { return base + Shape::OWN_V; }
    __device__ __forceinline__ unsigned k(unsigned stage) const { return base + k_place(stage); }
    __device__ __forceinline__ unsigned v(unsigned stage) const { return base + v_place(stage); }
    // The same from `base` on.
    __device__ __forceinline__ static unsigned k_place(unsigned stage) {
        return Shape::OWN_BYTES + stage * Shape::STREAM_BYTES;
    }
    __device__ __forceinline__ static unsigned v_place(unsigned stage) {
        return Shape::SINGLE_STAGE_V ? Shape::SINGLE_V : k_place(stage) + Shape::K_BYTES;
    }
    __device__ __forceinline__ unsigned statistics(unsigned stage) const {
        return base + Shape::STATISTICS + stage * Shape::STATISTICS_BYTES;
    }
    __device__ __forceinline__ Barrier own_full() const { return {base + Shape::BARRIERS}; }
    __device__ __forceinline__ Barrier own_empty() const { return {base + Shape::BARRIERS + 8}; }
    __device__ __forceinline__ Barrier full(unsigned stage) const { return {base + Shape::BARRIERS + 16 + 8 * stage}; }
    __device__ __forceinline__ Barrier empty(unsigned stage) const { return full(Shape::STAGES + stage); }

    __device__ __forceinline__ unsigned ds(unsigned stage) const { return base + Shape::DS + stage * Shape::DS_BYTES; }
    __device__ __forceinline__ unsigned staged(unsigned stage) const {
        return base + Shape::STAGED + (Shape::STAGED_TWICE ? stage * Shape::STAGED_BYTES : 0);
    }
    __device__ __forceinline__ Barrier ds_full(unsigned stage) const { return dq_barrier(0, stage); }
    __device__ __forceinline__ Barrier ds_empty(unsigned stage) const { return dq_barrier(1, stage); }
    __device__ __forceinline__ Barrier staged_full(unsigned stage) const { return dq_barrier(2, stage); }
    __device__ __forceinline__ Barrier staged_empty(unsigned stage) const { return dq_barrier(3, stage); }
    __device__ __forceinline__ Barrier v_full() const { return dq_barrier(4, 0); }
    __device__ __forceinline__ Barrier v_empty() const { return dq_barrier(4, 1); }

    __device__ void invalidate() const {
        own_full().inval();
        own_empty().inval();
        if (Shape::SINGLE_STAGE_V) {
            v_full().inval();
            v_empty().inval();
        }
        for (int i = 0; i < 2 * Shape::STAGES; ++i) full(i).inval();
        fence_proxy_async();  // TMA may write here next
    }
    __device__ void init() const {
        own_full().init(1);
        own_empty().init(Shape::OWN_USERS);
        if (Shape::SERIAL_DQ)
            for (int i = 0; i < 2; ++i) {
                ds_full(i).init(Shape::CONSUMER_WARPS);
                ds_empty(i).init(Shape::CONSUMER_WARPS);
                staged_full(i).init(Shape::CONSUMER_WARPS);
                staged_empty(i).init(1);
            }
        if (Shape::SINGLE_STAGE_V) {
            v_full().init(1);
            v_empty().init(Shape::CONSUMER_WARPS);
        }
        for (int i = 0; i < Shape::STAGES; ++i) {
            full(i).init(1);
            empty(i).init(Shape::STREAM_USERS);
        }
        fence_barrier_init();
    }

private:
    __device__ __forceinline__ Barrier dq_barrier(unsigned pair, unsigned stage) const {
        return full(2 * Shape::STAGES + 2 * pair + stage);
    }
};

// The problem with own rows as queries, under the names that FlashTileScheduler uses: `query_len` own rows, `key_len`
// streamed rows.
struct OwnSide {
    long long batch_size, num_heads, num_kv_heads, query_len, key_len;

    template <class Shape, class Args> __device__ static __forceinline__ OwnSide of(const Args& args) {
        if (Shape::OWN_KEYS)
            return {args.batch_size, args.num_kv_heads, args.num_kv_heads, args.key_len, args.query_len};
        return {args.batch_size, args.num_heads, args.num_kv_heads, args.query_len, args.key_len};
    }
};

// Rows [row, row + ROWS) of a matrix, in panels.
template <int PANELS, int ROWS, int BOX>
__device__ __forceinline__ void load_rows(unsigned to, const TensorMap& map, Barrier full, int row, int head, int batch,
                                          u64 policy) {
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll
        for (int first = 0; first < ROWS; first += BOX)
            load_box(to + (panel * ROWS + first) * 128, map, full, {64 * panel, row + first, head, batch}, policy);
}

// Loads of own or of streamed rows of a head: of k or q, and of v or dy. A broadcast axis (stride 0) has one
// coordinate.
template <class Shape, class Args> struct BackwardLoads {
    const Args& args;
    const int& batch;

    __device__ __forceinline__ void load_k(bool keys, unsigned k, Barrier full, int row, int head, bool is_own) const {
        const auto& of_k = keys ? args.k.stride : args.q.stride;
        const TensorMap& k_map = keys ? args.k_map : args.q_map;
        const int k_head = of_k[1] ? head : 0, k_batch = of_k[0] ? batch : 0;
        if (is_own) load_rows<Shape::K_PANELS, Shape::OWN, 64>(k, k_map, full, row, k_head, k_batch, EVICT_FIRST);
        else load_rows<Shape::K_PANELS, Shape::STREAM, Shape::UNIT>(k, k_map, full, row, k_head, k_batch, EVICT_LAST);
    }
    __device__ __forceinline__ void load_v(bool keys, unsigned v, Barrier full, int row, int head, bool is_own) const {
        const auto& of_v = keys ? args.v.stride : args.dy.stride;
        const TensorMap& v_map = keys ? args.v_map : args.dy_map;
        const int v_head = of_v[1] ? head : 0, v_batch = of_v[0] ? batch : 0;
        if (is_own) load_rows<Shape::V_PANELS, Shape::OWN, 64>(v, v_map, full, row, v_head, v_batch, EVICT_FIRST);
        else load_rows<Shape::V_PANELS, Shape::STREAM, Shape::UNIT>(v, v_map, full, row, v_head, v_batch, EVICT_LAST);
    }
};

// The producer: one thread issues all TMA loads.
template <class Shape, class Args>
__device__ __forceinline__ void backward_produce(const Sm90BackwardShared<Shape>& shared, const Args& args) {
    constexpr bool OWN_KEYS = Shape::OWN_KEYS;
    const OwnSide side = OwnSide::of<Shape>(args);
    const int own_heads = int(side.num_heads), group = int(args.num_heads) / int(args.num_kv_heads);
    const FlashBand<Shape> band = band_of_own<Shape>(args);
    FlashTileScheduler<Shape> scheduler(side);
    Ring<1> own;
    unsigned streamed = 0;  // tiles of the other kind
    for (;;) {
        FlashTile work;
        bool more;
        if constexpr (Shape::SERIAL_DQ) more = draw_ticket<Shape>(args, work);
        else more = scheduler.next(work.tile, work.head);
        shared.own_empty().wait(own.parity ^ 1);
        if (!more) {
#ifdef BARACUDA_HOST_CHECK
            shared.work_tile() = {};  // consumers read all of it
#endif
            shared.work_tile().tile = -1;
            shared.own_full().arrive();
            return;
        }
        if (!Shape::SERIAL_DQ) {
            // FlashTileScheduler assigns late tiles first, which are the longest if own rows are queries; of keys,
            // early ones are.
            if (OWN_KEYS && Shape::BAND) work.tile = scheduler.head_tiles - 1 - work.tile;
            const int first = work.tile * Shape::OWN;
            work.first = band.touched(first);
            work.end = band.touched_end(min(first + Shape::OWN, int(side.query_len)) - 1);
        }
        const int batch = work.head / own_heads, head = work.head - batch * own_heads;
        shared.work_tile() = work;

        const BackwardLoads<Shape, Args> loads = {args, batch};
        const int own_row = work.tile * Shape::OWN;
        shared.own_full().expect(Shape::OWN_BYTES);
        loads.load_k(OWN_KEYS, shared.own_k(), shared.own_full(), own_row, head, true);
        if (Shape::SUM_K) loads.load_v(OWN_KEYS, shared.own_v(), shared.own_full(), own_row, head, true);
        own.advance();

        const int first_head = OWN_KEYS ? head * group : head / group, end_head = first_head + (OWN_KEYS ? group : 1);
#pragma unroll 1
        for (int other = first_head; other < end_head; ++other)
#pragma unroll 1
            for (int tile = work.end - 1; tile >= work.first; --tile) {
                const unsigned stage = streamed % Shape::STAGES;
                shared.empty(stage).wait(streamed / Shape::STAGES % 2 ^ 1);
                const Barrier full = shared.full(stage);
                full.expect(Shape::STREAM_BYTES + Shape::STATISTICS_BYTES);
                loads.load_k(!OWN_KEYS, shared.k(stage), full, tile * Shape::STREAM, other, false);
                if (!Shape::SINGLE_STAGE_V)
                    loads.load_v(!OWN_KEYS, shared.v(stage), full, tile * Shape::STREAM, other, false);
                if (OWN_KEYS) {
                    const int unit = (batch * int(args.num_heads) + other) * query_units<Shape>(args);
                    const long long first = unit + tile * (Shape::STREAM / Shape::UNIT);
                    load_bytes(shared.statistics(stage), args.delta + first * (2 * Shape::UNIT),
                               Shape::STATISTICS_BYTES, full);
                }
                if (Shape::SINGLE_STAGE_V) {
                    shared.v_empty().wait(streamed % 2 ^ 1);
                    shared.v_full().expect(Shape::V_BYTES);
                    loads.load_v(!OWN_KEYS, shared.v(0), shared.v_full(), tile * Shape::STREAM, other, false);
                }
                ++streamed;
            }
    }
}

// Computes P and dS from scores and dP, for one thread's fragment: see below for which elements it has.
template <typename T, class Shape, class Variant> struct BackwardWeights {
    static constexpr bool PREFETCH = Shape::PREFETCH;
    static constexpr int N = Shape::STREAM / 2, OF_QUERIES = PREFETCH ? N / 2 : 1;
    static constexpr bool OWN_KEYS = Shape::OWN_KEYS, SUM_V = Shape::SUM_V, SOFTCAP = Variant::SOFTCAP;
    float factor, slope;     // a weight is exp2(factor score - lse); with a cap the score is tanh(slope score)
    unsigned statistics;     // where the tile's are, if own rows are keys; unless INTERLEAVED, the lane's
    float lse[2], delta[2];  // of the own rows, if those are queries
    int visible_from[2];     // the own rows attend to rows [visible_from, visible_from + span) of the tile
    unsigned span[2];

    template <class Args> __device__ __forceinline__ explicit BackwardWeights(const Args& args) {
        factor = LOG2_E * float(SOFTCAP ? args.softcap : args.scale);
        slope = SOFTCAP ? 2.0f * LOG2_E * float(args.scale) / float(args.softcap) : 0.0f;
    }

    // Own rows are `row` and the one 8 further.
    __device__ __forceinline__ void set_visible(const FlashBand<Shape>& band, int row, int tile) {
        const int column = tile * Shape::STREAM + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            visible_from[r] = band.first(row + 8 * r) - column;
            span[r] = unsigned(max(0, band.end(row + 8 * r) - column - visible_from[r]));
        }
    }
    __device__ __forceinline__ bool is_visible(int i) const {
        return unsigned(i / 4 * 8 + i % 2 - visible_from[i / 2 % 2]) < span[i / 2 % 2];
    }
    // Of the queries of elements i and i + 1, where i is a multiple of 4: lse, or `which` = 1 delta.
    __device__ __forceinline__ void of_queries(float (&two)[2], int i, int which) const {
        const int column = 2 * i, unit = column / Shape::UNIT * (2 * Shape::UNIT) + column % Shape::UNIT;
        const unsigned at = statistics + 4 * (unit + which * Shape::UNIT);
        load_shared(two, at);
    }
    // Those of all elements, in order, if they are prefetched.
    __device__ __forceinline__ void prefetch(float (&each)[OF_QUERIES], int which) const {
        if constexpr (!PREFETCH) return;
#pragma unroll
        for (int i = 0; i < OF_QUERIES; i += 4) {
            const int column = 4 * i, unit = column / Shape::UNIT * (2 * Shape::UNIT) + column % Shape::UNIT;
            const unsigned at = statistics + 4 * (unit + which * Shape::UNIT) + threadIdx.x % 4 * 16;
            load_shared_4(each + i, at);
        }
    }
    // Of element i or the next: the prefetched value or the one just read, or for own queries that of row r.
    __device__ __forceinline__ static float among(const float (&prefetched)[OF_QUERIES], const float (&now)[2],
                                                  const float (&of_row)[2], int i, int r, int e) {
        if constexpr (PREFETCH) return prefetched[i / 2 + e];
        else return OWN_KEYS ? now[e] : of_row[r];
    }

    // lse and delta of own queries, if own rows are such: `row` and the one 8 further.
    template <class Args> __device__ __forceinline__ void load_statistics(const Args& args, const int& head,
                                                                          const int& row) {
        if constexpr (OWN_KEYS) return;
        const long long query = head * (long long)(query_units<Shape>(args) * Shape::UNIT) + row;
        const float* at = args.delta + query / Shape::UNIT * (2 * Shape::UNIT) +
                          statistics_index<Shape::INTERLEAVED>(query % Shape::UNIT);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            lse[r] = at[statistics_index<Shape::INTERLEAVED>(8 * r)];
            delta[r] = at[statistics_index<Shape::INTERLEAVED>(8 * r) + Shape::UNIT];
        }
    }

    // Where lse and delta of the tile's queries are, if those are streamed.
    __device__ __forceinline__ void set_statistics(unsigned at) {
        if (!OWN_KEYS) return;
        statistics = at;
        if (!Shape::INTERLEAVED) statistics += threadIdx.x % 4 * 8;
    }

    // Scores become weights, also rounded into `rounded` with SUM_V; with a soft cap, scores become their tanh.
    template <bool EDGE>
    __device__ __forceinline__ void weigh(float (&score)[N], const float (&prefetched)[OF_QUERIES],
                                          unsigned (&rounded)[SUM_V ? N / 2 : 1]) const {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float base[2];
            if (OWN_KEYS && !PREFETCH) of_queries(base, i, 0);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float weight[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& at = score[i + 2 * r + e];
                    if (SOFTCAP) at = fmaf(-2.0f, quick_reciprocal(1.0f + quick_exp2(at * slope)), 1.0f);
                    weight[e] = quick_exp2(fmaf(at, factor, -among(prefetched, base, lse, i, r, e)));
                    if (EDGE && !is_visible(i + 2 * r + e)) weight[e] = 0.0f;
                    if (!SOFTCAP) at = weight[e];
                }
                if constexpr (SUM_V)
                    if (i < 8 * Shape::OVERLAPPED_STEPS) rounded[i / 2 + r] = pack_halves<T>(weight[0], weight[1]);
            }
        }
    }
    __device__ __forceinline__ void weigh(bool edge, float (&score)[N], const float (&prefetched)[OF_QUERIES],
                                          unsigned (&rounded)[SUM_V ? N / 2 : 1]) const {
        if (edge) weigh<true>(score, prefetched, rounded);
        else weigh<false>(score, prefetched, rounded);
    }
    // dS, rounded, from weights and dP.
    template <bool EDGE>
    __device__ __forceinline__ void to_ds(const float (&score)[N], const float (&grad)[N],
                                          const float (&prefetched)[OF_QUERIES], unsigned (&rounded)[N / 2],
                                          unsigned (&weights)[SUM_V ? N / 2 : 1]) const {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float base[2], mean[2];
            if (OWN_KEYS && !PREFETCH) of_queries(mean, i, 1);
            if (OWN_KEYS && SOFTCAP) of_queries(base, i, 0);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float ds[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float at = score[i + 2 * r + e];
                    float weight = at, cap_slope = 1.0f;
                    if (SOFTCAP) {
                        weight = quick_exp2(fmaf(at, factor, -(OWN_KEYS ? base[e] : lse[r])));
                        cap_slope = fmaf(-at, at, 1.0f);
                    }
                    ds[e] = weight * (grad[i + 2 * r + e] - among(prefetched, mean, delta, i, r, e));
                    if (SOFTCAP) ds[e] *= cap_slope;
                    if (EDGE && !is_visible(i + 2 * r + e)) ds[e] = 0.0f;
                }
                rounded[i / 2 + r] = pack_halves<T>(ds[0], ds[1]);
                if constexpr (SUM_V)
                    if (i >= 8 * Shape::OVERLAPPED_STEPS)
                        weights[i / 2 + r] = pack_halves<T>(score[i + 2 * r], score[i + 2 * r + 1]);
            }
        }
    }
    __device__ __forceinline__ void to_ds(bool edge, const float (&score)[N], const float (&grad)[N],
                                          const float (&prefetched)[OF_QUERIES], unsigned (&rounded)[N / 2],
                                          unsigned (&weights)[SUM_V ? N / 2 : 1]) const {
        if (edge) to_ds<true>(score, grad, prefetched, rounded, weights);
        else to_ds<false>(score, grad, prefetched, rounded, weights);
    }
};

// Writes both rows of a fragment times `factor`: four lanes exchange their pairs, so that each has 8 neighbours of
// every 32. `rows` of them exist.
template <typename T, int N>
__device__ __forceinline__ void backward_store(const float (&sum)[N], float factor, T* to, long long stride, int rows,
                                               long long columns) {
    const int quad = threadIdx.x % 4;
    const bool odd = quad & 1, high = quad & 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        T* row = to + 8 * r * stride + 8 * quad;
#pragma unroll
        for (int i = 2 * r; i < N; i += 16) {
            unsigned word[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) word[j] = pack_halves<T>(sum[i + 4 * j] * factor, sum[i + 4 * j + 1] * factor);
            exchange(word[0], word[1], odd, 1);
            exchange(word[2], word[3], odd, 1);
            exchange(word[0], word[2], high, 2);
            exchange(word[1], word[3], high, 2);
            if (8 * r < rows && 2 * (i - 2 * r) + 8 * quad < columns)
                __stwb(reinterpret_cast<uint4*>(row + 2 * (i - 2 * r)), make_uint4(word[0], word[1], word[2], word[3]));
        }
    }
}

// Steps [FROM, TO) of dv's product, of 16 queries each.
template <typename T, class Shape, int FROM, int TO, int N, int M>
__device__ __forceinline__ void multiply_weights(float (&sum)[N], unsigned (&weight)[M], Matrix dy) {
#pragma unroll
    for (int i = 4 * FROM; i < 4 * TO; ++i) asm volatile("" : "+r"(weight[i])::"memory");  // pins what is used
    wgmma_fence();
#pragma unroll
    for (int step = FROM; step < TO; ++step)
        Wgmma<T, Shape::DV>::template registers<true>(sum, weight + 4 * step, dy + step * (16 * 128), false);
    wgmma_commit();
}

// A streamed tile has been read, by a thread of the warp or by all.
template <class Shape> struct BackwardRelease {
    const Sm90BackwardShared<Shape>& shared;
    const int& lane;
    __device__ __forceinline__ void operator()(unsigned stage) const {
        if (Shape::OWN_KEYS || lane == 0) shared.empty(stage).arrive();
    }
};
// The ring of v or dy, if SINGLE_STAGE_V.
template <class Shape> struct BackwardVRing {
    const Sm90BackwardShared<Shape>& shared;
    Ring<1>& v_ring;
    const int& lane;

    __device__ __forceinline__ void release() const {
        if (lane == 0) shared.v_empty().arrive();
        v_ring.advance();
    }
};
// Skips streamed tiles (end, tile] that only the other warpgroup needs.
template <class Shape> struct BackwardSkip {
    const Sm90BackwardShared<Shape>& shared;
    Ring<Shape::STAGES>& ring;
    Ring<1>& v_ring;
    const BackwardVRing<Shape>& release_v;
    const BackwardRelease<Shape>& release;

    __device__ __forceinline__ void tiles(int tile, int end) const {
        if constexpr (!Shape::SKIPS) return;
#pragma unroll 1
        for (; tile > end; --tile) {
            shared.full(ring.stage).wait(ring.parity);
            release(ring.stage);
            ring.advance();
            if constexpr (Shape::SINGLE_STAGE_V) {
                shared.v_full().wait(v_ring.parity);
                release_v.release();
            }
        }
    }
};

// S or dP: own rows times streamed rows.
template <typename T, class Shape> __device__ __forceinline__ void multiply_own(float (&to)[Shape::STREAM / 2],
                                                                                Matrix a, Matrix b, int steps) {
    constexpr unsigned COLUMNS_16 = 32;  // bytes of a panel
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const unsigned column = step % 4 * COLUMNS_16;
        Wgmma<T, Shape::STREAM>::template shared<false>(to, a + (step / 4 * Shape::OWN_PANEL + column),
                                                        b + (step / 4 * Shape::STREAM_PANEL + column), step == 0);
    }
    wgmma_commit();
}

// Matrices in shared memory: each is derived from one where it is used, to keep one register live along the loop.
struct SharedMatrix {
    const Matrix& origin;
    __device__ __forceinline__ Matrix operator()(unsigned place_in_shared) const {
        Matrix made = origin;
        asm volatile("" : "+r"(made.start));
        return made + place_in_shared;
    }
};

template <int N> __device__ __forceinline__ void clear(float (&sum)[N]) {
#pragma unroll
    for (float& element : sum) element = 0.0f;
}

// dP, if it is needed. S is complete.
template <typename T, class Shape, int N>
__device__ __forceinline__ void multiply_v(const Sm90BackwardShared<Shape>& shared, const Ring<1>& v_ring,
                                           float (&grad)[N], const SharedMatrix& matrix, unsigned own_v, unsigned v) {
    if constexpr (Shape::SUM_K) {
        if (Shape::SINGLE_STAGE_V) shared.v_full().wait(v_ring.parity);
        wgmma_fence();
        multiply_own<T, Shape>(grad, matrix(own_v), matrix(v), Shape::DV / 16);
        wgmma_wait<1>();
    } else {
        wgmma_wait<0>();
    }
}

// dV += P^T dY, if it is computed. dP is complete.
template <typename T, class Shape, int N, int M>
__device__ __forceinline__ void add_to_dv(float (&sum_v)[N], unsigned (&weight)[M], const SharedMatrix& matrix,
                                          unsigned v, const BackwardVRing<Shape>& release_v) {
    if constexpr (Shape::SUM_V) {
        multiply_weights<T, Shape, 0, Shape::OVERLAPPED_STEPS>(sum_v, weight, matrix(v));
        if (Shape::SUM_K) wgmma_wait<1>();
    } else {
        wgmma_wait<0>();
        if constexpr (Shape::SINGLE_STAGE_V) release_v.release();
    }
}

// dK += dS^T Q, or dQ += dS K.
template <typename T, class Shape, int N, int M>
__device__ __forceinline__ void add_to_dk(float (&sum_k)[N], unsigned (&ds)[M], const SharedMatrix& matrix,
                                          unsigned k) {
    const Matrix b = matrix(k);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::STREAM / 16; ++step)
        Wgmma<T, Shape::DK>::template registers<true>(sum_k, ds + 4 * step, b + step * (16 * 128), false);
    wgmma_commit();
}

// The rest of P^T dY: steps whose weights had no registers while dS was computed.
template <typename T, class Shape, int N, int M>
__device__ __forceinline__ void add_rest_to_dv(float (&sum_v)[N], unsigned (&weight)[M], const SharedMatrix& matrix,
                                               unsigned v) {
    constexpr int STEPS = Shape::STREAM / 16;
    if constexpr (Shape::SUM_V && Shape::OVERLAPPED_STEPS < STEPS)
        multiply_weights<T, Shape, Shape::OVERLAPPED_STEPS, STEPS>(sum_v, weight, matrix(v));
}

// With SERIAL_DQ, the tile's part of dq: starts dS K, which takes the place of the scores.
template <typename T, class Shape, int N, int M>
__device__ __forceinline__ void start_dq(const Sm90BackwardShared<Shape>& shared, const Ring<Shape::STAGES>& ring,
                                         int place, const unsigned (&ds)[N], const SharedMatrix& matrix,
                                         float (&queries)[M]) {
    if constexpr (Shape::SERIAL_DQ) {
        store_ds<Shape>(shared, ring, place, ds);
        const auto ds_matrix = PanelMatrix<32>::at(shared.ds(ring.stage), Shape::DS_PANEL);
        multiply_ds<T, Shape>(shared, ring, matrix(place * Shape::OWN_PANEL), ds_matrix, queries);
    }
}
// Stages what start_dq computed; dK's product runs on.
template <class Shape, int M>
__device__ __forceinline__ void finish_dq(const Sm90BackwardShared<Shape>& shared, const Ring<Shape::STAGES>& ring,
                                          int place, float (&queries)[M]) {
    if constexpr (Shape::SERIAL_DQ) {
        wgmma_wait<1>();
        fence_operand(queries);
        stage_queries<Shape>(shared, ring, place, queries);
    }
}

// The streamed tiles [first, end) that the 64 own rows of a warpgroup attend to; scores of tiles [full, full_end) need
// no mask. Queries beyond the last need none either: see query_units.
template <class Shape> struct BackwardTiles {
    int first, end, full, full_end;

    __device__ __forceinline__ BackwardTiles(const FlashBand<Shape>& band, const FlashTile& work, int row) {
        first = work.first, end = work.end, full = 0;
        if (Shape::SKIPS) {
            first = max(first, band.touched(row));
            end = min(end, band.touched_end(row + 63));
        }
        if (Shape::BAND) full = band.full(row + 63);
        full_end = Shape::BAND || !Shape::OWN_KEYS ? band.full_end(row) : end;
    }
    __device__ __forceinline__ bool has_edge(int tile) const {
        return (Shape::BAND && tile < full) || ((Shape::BAND || !Shape::OWN_KEYS) && tile >= full_end);
    }
};

// Heads whose tiles are streamed: those that share the own keys, or one.
template <class Shape, class Args> __device__ __forceinline__ int heads_of_own(const Args& args) {
    return Shape::OWN_KEYS ? int(args.num_heads) / int(args.num_kv_heads) : 1;
}

// dk of own keys, dq of own queries.
template <bool OWN_KEYS, class Args> __device__ __forceinline__ const auto& gradient_of_k(const Args& args) {
    if constexpr (OWN_KEYS) return args.dk;
    else return args.dq;
}

// Writes a warpgroup's dk or dq, and its dv, and releases the own rows.
template <typename T, class Shape, class Args, int N, int M>
__device__ __forceinline__ void store_gradients(const Sm90BackwardShared<Shape>& shared, int own_row, const Args& args,
                                                float (&sum_k)[N], float (&sum_v)[M]) {
    const OwnSide side = OwnSide::of<Shape>(args);
    const FlashTile work = shared.work_tile();  // read again, rather than kept in registers along the loop
    shared.own_empty().arrive();
    const int row = work.tile * Shape::OWN + own_row, rows = int(side.query_len) - row;
    const int batch = work.head / int(side.num_heads), head = work.head - batch * int(side.num_heads);
    if constexpr (Shape::SUM_K) {
        fence_operand(sum_k);
        const auto& of_k = gradient_of_k<Shape::OWN_KEYS>(args);
        backward_store(sum_k, float(args.scale), of_k.at(batch, head, row), of_k.stride[2], rows, args.d_k);
    }
    if constexpr (Shape::SUM_V) {
        fence_operand(sum_v);
        backward_store(sum_v, 1.0f, args.dv.at(batch, head, row), args.dv.stride[2], rows, args.d_v);
    }
}

// A warpgroup of consumers; `place` is its number. A thread's fragment has elements of two own rows, 8 apart: elements
// 4 j + 2 r and the next are of row r, columns 8 j and the next after the first.
template <typename T, class Shape, class Variant, class Args>
__device__ __forceinline__ void backward_consume(const Sm90BackwardShared<Shape>& shared, int place, const Args& args) {
    constexpr int STREAM = Shape::STREAM;
    using Weights = BackwardWeights<T, Shape, Variant>;
    const int lane = threadIdx.x % 32, own_row = 64 * place + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const FlashBand<Shape> band = band_of_own<Shape>(args);
    const Matrix origin = Matrix::at(shared.base, Shape::STREAM_PANEL);
    const SharedMatrix matrix = {origin};
    Weights weights(args);
    Ring<1> own;
    Ring<Shape::STAGES> ring;
    Ring<1> v_ring;  // if SINGLE_STAGE_V

    const BackwardRelease<Shape> release = {shared, lane};
    const BackwardVRing<Shape> release_v = {shared, v_ring, lane};
    const BackwardSkip<Shape> skip = {shared, ring, v_ring, release_v, release};

    for (;;) {
        shared.own_full().wait(own.parity);
        own.advance();
        const FlashTile work = shared.work_tile();
        if (work.tile < 0) return;
        const int row = work.tile * Shape::OWN + own_row;
        const BackwardTiles<Shape> tiles(band, work, work.tile * Shape::OWN + 64 * place);
        weights.load_statistics(args, work.head, row);

        float sum_k[Shape::OF_SUM_K], sum_v[Shape::OF_SUM_V], score[STREAM / 2], grad[STREAM / 2];
        clear(sum_k);
        clear(sum_v);

#pragma unroll 1
        for (int heads = heads_of_own<Shape>(args); heads > 0; --heads) {
            skip.tiles(work.end, max(tiles.end, work.first));
            unsigned used = 0;
#pragma unroll 1
            for (int tile = tiles.end - 1; tile >= tiles.first; --tile) {
                shared.full(ring.stage).wait(ring.parity);
                const unsigned k = shared.k_place(ring.stage), v = shared.v_place(ring.stage);
                const unsigned own_k = place * (64 * 128), own_v = own_k + Shape::OWN_V;
                weights.set_statistics(shared.statistics(ring.stage));
                const bool edge = tiles.has_edge(tile);
                if (edge) weights.set_visible(band, row, tile);

                unsigned weight[Shape::OF_WEIGHTS], ds[STREAM / 4];
                float prefetched[Weights::OF_QUERIES];
                wgmma_fence();
                multiply_own<T, Shape>(score, matrix(own_k), matrix(k), Shape::DK / 16);
                if constexpr (Shape::SERIAL_DQ)
                    if (tile != tiles.end - 1) publish_queries(shared, used);
                wgmma_wait<1>();  // the last product of the tile before has ended
                if (tile != tiles.end - 1) release(used);
                weights.prefetch(prefetched, 0);
                multiply_v<T>(shared, v_ring, grad, matrix, own_v, v);
                fence_operand(score);
                weights.weigh(edge, score, prefetched, weight);
                if constexpr (Shape::SUM_K) weights.prefetch(prefetched, 1);
                add_to_dv<T, Shape>(sum_v, weight, matrix, v, release_v);
                if constexpr (Shape::SUM_K) {
                    fence_operand(grad);
                    weights.to_ds(edge, score, grad, prefetched, ds, weight);
                    fence_operand(ds);
                    add_rest_to_dv<T, Shape>(sum_v, weight, matrix, v);
                    start_dq<T, Shape>(shared, ring, place, ds, matrix, score);
                    add_to_dk<T, Shape>(sum_k, ds, matrix, k);
                    finish_dq<Shape>(shared, ring, place, score);
                }
                used = ring.stage;
                ring.advance();
            }
            wgmma_wait<0>();
            if (tiles.first < tiles.end) {
                release(used);
                if constexpr (Shape::SERIAL_DQ) publish_queries(shared, used);
            }
            skip.tiles(min(tiles.first, tiles.end), work.first);
        }
        store_gradients<T>(shared, own_row, args, sum_k, sum_v);
    }
}

template <class Shape> __device__ __forceinline__ Sm90BackwardShared<Shape> backward_shared() {
    DYN_SHARED(unsigned char, dynamic);
    const unsigned address = shared_address(dynamic);
    static_assert(reserves(1024 + Shape::WORK_TILE + sizeof(FlashTile), 1 << 20),
                  "the launch reserves what is laid out");
    return {address + (-address & 1023)};  // panels start at multiples of 1024
}

// Between two Shapes: reinitializes shared memory for the next.
template <class Shape, class Next> __device__ __forceinline__ void next_part() {
    __syncthreads();
    if (threadIdx.x == 0) {
        backward_shared<Shape>().invalidate();
        backward_shared<Next>().init();
    }
    __syncthreads();
}

// All tiles of a Shape, then all of the next: producer and consumers.
template <class Shape, class... Shapes, class Args> __device__ __forceinline__ void produce_parts(const Args& args) {
    if (threadIdx.x == 0) backward_produce(backward_shared<Shape>(), args);
    if constexpr (Shape::SERIAL_DQ)
        if (threadIdx.x == 32 || threadIdx.x == 64)
            add_to_dq<Shape>(backward_shared<Shape>(), threadIdx.x / 32 - 1, args);
    if constexpr (sizeof...(Shapes) != 0) {
        next_part<Shape, Shapes...>();
        produce_parts<Shapes...>(args);
    }
}
template <typename T, class Variant, class Shape, class... Shapes, class Args>
__device__ __forceinline__ void consume_parts(int place, const Args& args) {
    backward_consume<T, Shape, Variant>(backward_shared<Shape>(), place, args);
    if constexpr (sizeof...(Shapes) != 0) {
        next_part<Shape, Shapes...>();
        consume_parts<T, Variant, Shapes...>(place, args);
    }
}

template <typename T, class Variant, class Shape, class... Shapes, class Args>
__device__ __forceinline__ void backward_walk(const Args& args) {
    static_assert((reserves(1024 + Shape::WORK_TILE, 1024) || ... || reserves(1024 + Shapes::WORK_TILE, 1024)),
                  "the launch reserves no more");
    const int warpgroup = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);  // the same register in all lanes
    if (threadIdx.x == 0) backward_shared<Shape>().init();
    __syncthreads();
    if (warpgroup == 0) {
        deallocate_registers<Shape::PRODUCER_REGISTERS>();
        produce_parts<Shape, Shapes...>(args);
    } else {
        allocate_registers<Shape::CONSUMER_REGISTERS>();
        consume_parts<T, Variant, Shape, Shapes...>(warpgroup - 1, args);
    }
}

template <class Schedule, class Variant, bool SUM_K = true, bool SUM_V = true>
using OwnsKeys = Sm90BackwardShape<true, SUM_K, SUM_V, Schedule::CHAINED != 0, Schedule::KV_BLOCK_K,
                                   Schedule::KV_BLOCK_Q, Schedule::KV_STAGES, Schedule, Variant>;
template <class Schedule, class Variant>
using OwnsQueries = Sm90BackwardShape<false, true, false, false, Schedule::Q_BLOCK_Q, Schedule::Q_BLOCK_K,
                                      Schedule::Q_STAGES, Schedule, Variant>;

constexpr int DELTA_LANES = 8;

// Block -> THREADS / DELTA_LANES rows of [batch, head, padded query], in order; DELTA_LANES neighbouring lanes -> a
// row. Reads y and dy once, 16 bytes at a time, and lse; writes units of `delta` and, if CHAINED, the schedule of
// tickets.
template <typename T, class Schedule, class Variant, class Args>
__device__ void flash_sdpa_backward_delta(const Args& args) {
    using Shape = OwnsKeys<Schedule, Variant>;
    constexpr int N = 8, ROWS = Schedule::THREADS / DELTA_LANES;
    const int lane = threadIdx.x % DELTA_LANES;
    const long long row = (long long)(blockIdx.x) * ROWS + threadIdx.x / DELTA_LANES;
    const long long padded = query_units<Shape>(args) * Shape::UNIT, place = row / padded, query = row % padded;
    const bool exists = place < args.batch_size * args.num_heads, inside = exists && query < args.query_len;
    const long long batch = place / args.num_heads, head = place % args.num_heads;
    float sum = 0;
    if (inside) {
        const T *y = args.y.at(batch, head, query), *dy = args.dy.at(batch, head, query);
#pragma unroll 2
        for (int col = lane * N; col < args.d_v; col += DELTA_LANES * N) {
            Pack<T, N> of_y, of_dy;
            of_y.load(y + col);
            of_dy.load(dy + col);
#pragma unroll
            for (int i = 0; i < N; ++i) sum = fmaf(float(of_y.lane[i]), float(of_dy.lane[i]), sum);
        }
    }
#pragma unroll
    for (int step = DELTA_LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
    if (exists && lane == 0) {
        const float lse = inside ? *args.lse.at(batch, head, query) : -math::infinity<float>();
        float* to = args.delta + row / Shape::UNIT * (2 * Shape::UNIT) +
                    statistics_index<Shape::INTERLEAVED>(row % Shape::UNIT);
        to[0] = lse == -math::infinity<float>() ? math::infinity<float>() : lse * LOG2_E;
        to[Shape::UNIT] = sum;
    }
    if constexpr (Schedule::CHAINED) {
        if (exists && lane == 0 && row % Shape::UNIT == 0) *dq_semaphore<Shape::OWN>(args, int(row / Shape::UNIT)) = 0;
        schedule_dq_tiles<Shape>(args);
    }
}

// dk and dv of tiles of KV_BLOCK_K keys, over all queries that attend to them, of the heads that share them, in order
// of heads and then from the last query on. Reads k and v once, and for each tile of keys q, dy and delta. With
// SERIAL_DQ, adds to dq. In two parts all of that twice, for dk and for dv.
template <typename T, class Schedule, class Variant, class Args>
__device__ __forceinline__ void flash_sdpa_backward_dkdv(const Args& args) {
    if constexpr (Schedule::KV_PARTS == 2)
        backward_walk<T, Variant, OwnsKeys<Schedule, Variant, true, false>, OwnsKeys<Schedule, Variant, false, true>>(
            args);
    else backward_walk<T, Variant, OwnsKeys<Schedule, Variant>>(args);
}

// dq of tiles of Q_BLOCK_Q queries, over all keys that they attend to, from the last on. Reads q, dy and delta once,
// and for each tile of queries k and v. With SERIAL_DQ, only rounds dq.
template <typename T, class Schedule, class Variant, class Args>
__device__ __forceinline__ void flash_sdpa_backward_dq(const Args& args) {
    if constexpr (Schedule::CHAINED) round_dq<T, OwnsKeys<Schedule, Variant>>(args);
    else backward_walk<T, Variant, OwnsQueries<Schedule, Variant>>(args);
}

}  // namespace baracuda
