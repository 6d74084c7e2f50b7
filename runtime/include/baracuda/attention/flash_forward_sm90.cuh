// Attention forward of 16-bit types for sm_90a: y = softmax(scale q k^T) v and lse, the logarithm of each row's sum, in
// one loop over the keys.
//
// block -> a fixed list of tiles of BLOCK_Q queries of one head (see FlashTileScheduler); persistent, one per
// multiprocessor
// warpgroup 0 -> the producer: its first thread issues TMA loads of queries, keys and values
// warpgroup 1 ... -> consumers, 64 queries each: scores and sums stay in registers, in the layout of wgmma
//
// TMA does all loads: queries once, keys and values once per tile of queries that attends to them. Four lanes write 64
// neighbouring elements of y, 16 bytes each; lse is written once per query.
//
// The product of scores of one tile of keys overlaps with the product of weights and values of the tile before and with
// the exponentials. Keys are visited from the last to the first; tiles outside of all bands are not loaded.
//
// Sums have a fixed order: results are bit-identical from run to run. NaN in q, k or v gives NaN in all rows that
// attend to it; NaN or infinity in a value does so also with weight 0, as for masked keys in a visited tile. A row that
// attends to no key is 0, its lse -inf.
//
// Rows of q, k and v are at multiples of 16 bytes, so are those of y, whose d_v is a multiple of 8. Lengths are at most
// 2^30, and key_len is not 0: tensor maps know no empty tensor.
#pragma once

#include <baracuda/attention/scores.cuh>
#include <baracuda/arch/cache.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tma_sm90.cuh>
#include <baracuda/arch/wgmma_sm90.cuh>
#include <baracuda/shared.cuh>

namespace baracuda {

// The layout of shared memory, for a schedule: tiles of BLOCK_Q queries and BLOCK_K keys, STAGES buffers of keys and of
// values and QUERY_STAGES of queries. QUERY_REGISTERS: consumers copy queries to registers, which frees their buffer
// for the next tile. PASSES: a warpgroup skips tiles of keys that only others attend to, which costs 3 % elsewhere.
// THREADS is 2 BLOCK_Q + 128. DK columns of queries and keys and DV of values, multiples of 32 up to 256, are in panels
// of 64; columns beyond d_k and d_v are zeros. Boxes of the maps: BLOCK_Q rows and a panel of q, BLOCK_K rows and a
// panel of k and v. Dynamic shared memory: 2048 + 128 (ceil(DK / 64) (QUERY_STAGES BLOCK_Q + STAGES BLOCK_K) + ceil(DV
// / 64) STAGES BLOCK_K).
template <class Schedule, class Variant> struct FlashShape {
    static constexpr int DK = Variant::DK, DV = Variant::DV, K_PANELS = (DK + 63) / 64, V_PANELS = (DV + 63) / 64;
    static constexpr int BLOCK_Q = Schedule::BLOCK_Q, BLOCK_K = Schedule::BLOCK_K, STAGES = Schedule::STAGES;
    static constexpr int QUERY_STAGES = Schedule::QUERY_STAGES;
    static constexpr int CONSUMERS = BLOCK_Q / 64, CONSUMER_WARPS = 4 * CONSUMERS;
    // A soft cap needs registers: then queries stay in shared memory, and the kernel with a band is used, because ptxas
    // spills one register of the other.
    static constexpr bool BAND = Variant::BAND || Variant::SOFTCAP;
    static constexpr bool QUERY_REGISTERS = Schedule::QUERY_REGISTERS && !Variant::SOFTCAP;
    static constexpr int QUERY_WORDS = QUERY_REGISTERS ? DK / 4 : 1;
    static constexpr bool PASSES = Schedule::PASSES;

    static_assert(DK % 32 == 0 && DK <= 256 && DV % 32 == 0 && DV <= 256, "columns are multiples of 32, 256 at most");
    static_assert(Schedule::THREADS == 128 * (CONSUMERS + 1) && BLOCK_Q % 64 == 0, "64 queries a warpgroup");
    static_assert(CONSUMERS == 2 || CONSUMERS == 3, "the registers are divided for two or three consumers");
    static_assert(STAGES >= 2, "a product reads the keys of one tile and the values of the tile before");
    static_assert(Variant::PACKED && !Variant::HAS_MASK && !Variant::HAS_ALIBI_SLOPES, "left to the portable kernel");

    // Registers per thread after setmaxnreg, in steps of 8.
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160, PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;

    static constexpr unsigned QUERY_PANEL = BLOCK_Q * 128, KEY_PANEL = BLOCK_K * 128;  // bytes
    static constexpr unsigned KEY_TILE = K_PANELS * KEY_PANEL, VALUE_TILE = V_PANELS * KEY_PANEL;
    static constexpr unsigned QUERY_TILE = K_PANELS * QUERY_PANEL, KEYS = QUERY_STAGES * QUERY_TILE;
    static constexpr unsigned VALUES = KEYS + STAGES * KEY_TILE, BARRIERS = VALUES + STAGES * VALUE_TILE;
    static constexpr unsigned WORK_TILE = BARRIERS + 8 * (2 * QUERY_STAGES + 4 * STAGES);
};

// A unit of work: a tile of queries, its head among those of all batches, and the tiles of keys [first, end) that some
// of them attend to. `tile` is -1 after the last.
struct FlashTile {
    int tile, head, first, end;

    // Lane 0 reads and broadcasts: it is also lane 0 that releases the buffer later.
    __device__ __forceinline__ static FlashTile read(const FlashTile& place) {
        FlashTile work = {};
        if (threadIdx.x % 32 == 0) work = place;
        return {of_lane_0(work.tile), of_lane_0(work.head), of_lane_0(work.first), of_lane_0(work.end)};
    }

private:
    __device__ __forceinline__ static int of_lane_0(int value) { return __shfl_sync(ALL_LANES, value, 0); }
};

// The shared memory of a block. Barriers: `full` when a tile has arrived, `empty` when all consumers have released it.
template <class Shape> struct FlashShared {
    unsigned base;

    // Has the lifetime of the queries. Recomputed from a 32-bit address to save registers.
    __device__ __forceinline__ FlashTile& work_tile(unsigned stage) const {
        return *static_cast<FlashTile*>(
            __cvta_shared_to_generic(base + Shape::WORK_TILE + stage * unsigned(sizeof(FlashTile))));
    }
    __device__ __forceinline__ unsigned query(unsigned stage) const { return base + stage * Shape::QUERY_TILE; }
    __device__ __forceinline__ unsigned key(unsigned stage) const {
        return base + Shape::KEYS + stage * Shape::KEY_TILE;
    }
    __device__ __forceinline__ unsigned value(unsigned stage) const {
        return base + Shape::VALUES + stage * Shape::VALUE_TILE;
    }

    __device__ __forceinline__ Barrier query_full(unsigned stage) const { return barrier(stage); }
    __device__ __forceinline__ Barrier query_empty(unsigned stage) const {
        return barrier(Shape::QUERY_STAGES + stage);
    }
    __device__ __forceinline__ Barrier key_full(unsigned stage) const { return barrier(0, stage); }
    __device__ __forceinline__ Barrier key_empty(unsigned stage) const { return barrier(1, stage); }
    __device__ __forceinline__ Barrier value_full(unsigned stage) const { return barrier(2, stage); }
    __device__ __forceinline__ Barrier value_empty(unsigned stage) const { return barrier(3, stage); }

    __device__ void init() const {
        for (int i = 0; i < Shape::QUERY_STAGES; ++i) {
            query_full(i).init(1);
            query_empty(i).init(Shape::CONSUMER_WARPS);
        }
        for (int i = 0; i < Shape::STAGES; ++i) {
            key_full(i).init(1);
            value_full(i).init(1);
            key_empty(i).init(Shape::CONSUMER_WARPS);
            value_empty(i).init(Shape::CONSUMER_WARPS);
        }
        fence_barrier_init();
    }

private:
    __device__ __forceinline__ Barrier barrier(unsigned nth) const { return {base + Shape::BARRIERS + 8 * nth}; }
    __device__ __forceinline__ Barrier barrier(unsigned ring, unsigned stage) const {
        return barrier(2 * Shape::QUERY_STAGES + ring * Shape::STAGES + stage);
    }
};

// The static tile scheduler of persistent blocks: each block computes its own list of tiles.
//
// Without a band all tiles cost the same but the last of a head, which may be short. Blocks take one head after the
// other, so that they share its keys in the cache; the starting block rotates from round to round, so that short tiles
// are spread.
//
// With a band, early queries may have few keys and late ones many. As many heads as fit in the L2 cache make a section.
// Its tiles, late queries first, are assigned in rounds of alternating direction: the block with the longest tile of
// one round gets the shortest of the next. Every section starts at another block.
template <class Shape> struct FlashTileScheduler {
    int heads, head_tiles, section;  // of all batches, of one head, heads of a section
    int blocks, position;            // their number, and the place of this one in the current section
    int part = 0, round = 0;         // the current section, and its round

    template <class Args> __device__ __forceinline__ explicit FlashTileScheduler(const Args& args) {
        heads = int(args.batch_size * args.num_heads);
        head_tiles = (int(args.query_len) + Shape::BLOCK_Q - 1) / Shape::BLOCK_Q;
        blocks = int(gridDim.x);
        position = int(blockIdx.x);
        section = heads;
        if (Shape::BAND) {
            constexpr int CACHED_KEYS = L2_BYTES / (2 * (Shape::DK + Shape::DV));
            const int group = int(args.num_heads / args.num_kv_heads);
            const int cached = CACHED_KEYS / min(int(args.key_len), CACHED_KEYS) * group;
            section = min(heads, max(cached, (2 * blocks + head_tiles - 1) / head_tiles));  // two rounds at least
            // Sections of one size are balanced; a smaller last one is not, by up to a tenth of the time.
            for (int fewer = 0; fewer < 8 && fewer < section / 2; ++fewer)
                if (heads % (section - fewer) == 0) {
                    section -= fewer;
                    break;
                }
        }
    }

    // The next tile of queries and its head; false after the last.
    __device__ __forceinline__ bool next(int& tile, int& head) {
        while (part * section < heads) {
            const int width = min(section, heads - part * section);
            const int slot = !Shape::BAND ? (position + round) % blocks : round % 2 ? blocks - 1 - position : position;
            const int index = round * blocks + slot;
            ++round;
            if (index < width * head_tiles) {
                const int row = index / (Shape::BAND ? width : head_tiles);
                head = Shape::BAND ? part * section + index - row * width : row;
                tile = Shape::BAND ? head_tiles - 1 - row : index - row * head_tiles;
                return true;
            }
            ++part;
            round = 0;
            position = (position + blocks * 5 / 8) % blocks;
        }
        return false;
    }
};

// The band of scores.cuh in 32 bits: no length is above 2^30, and a longer side is unlimited. Without BAND nothing is
// masked.
template <class Shape> struct FlashBand {
    static constexpr int BLOCK_K = Shape::BLOCK_K;
    int keys, before, after;  // query i attends to keys [i + before, i + after)

    template <class Args> __device__ __forceinline__ explicit FlashBand(const Args& args) : keys(int(args.key_len)) {
        constexpr long long OPEN = 1 << 30;
        const Band band = Band::of(args.query_len, keys, args.bottom_right != 0, args.is_causal != 0, args.window_left,
                                   args.window_right);
        before = int(band.left < 0 ? -OPEN : max(-OPEN, band.shift - min(band.left, 2 * OPEN)));
        after = int(band.right < 0 ? OPEN : min(OPEN, band.shift + min(band.right, 2 * OPEN) + 1));
    }
    __device__ __forceinline__ int first(int query) const { return Shape::BAND ? max(0, query + before) : 0; }
    __device__ __forceinline__ int end(int query) const {
        return Shape::BAND ? max(0, min(keys, query + after)) : keys;
    }

    // Of queries [query, last], some attend to keys of tiles [touched, touched_end), all to all keys of [full,
    // full_end).
    __device__ __forceinline__ int touched(int query) const { return first(query) / BLOCK_K; }
    __device__ __forceinline__ int touched_end(int last) const { return (end(last) + BLOCK_K - 1) / BLOCK_K; }
    __device__ __forceinline__ int full(int last) const { return (first(last) + BLOCK_K - 1) / BLOCK_K; }
    __device__ __forceinline__ int full_end(int query) const { return end(query) / BLOCK_K; }
};

// Rows of a matrix from `start` on, in panels of PANEL bytes, `bytes` in all.
template <int PANELS, unsigned PANEL>
__device__ __forceinline__ void load_panels(unsigned to, const TensorMap& map, Barrier full, unsigned bytes,
                                            BoxStart start, u64 policy) {
    full.expect(bytes);
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel)
        load_box(to + panel * PANEL, map, full, {64 * panel, start.row, start.head, start.batch}, policy);
}

// Where a producer loads from: a batch, a head of queries, and one of keys and values.
struct FlashHead {
    int batch, head, kv_head;
};

// Loads of tiles of a head. A broadcast axis (stride 0) has one coordinate.
template <class Shape, class Args> struct FlashLoads {
    const FlashShared<Shape>& shared;
    const Args& args;
    Ring<Shape::STAGES>&value, &key;
    const FlashHead& place;

    __device__ __forceinline__ void load_keys(int tile) const {
        shared.key_empty(key.stage).wait(key.parity ^ 1);
        const Barrier full = shared.key_full(key.stage);
        load_panels<Shape::K_PANELS, Shape::KEY_PANEL>(
            shared.key(key.stage), args.k_map, full, Shape::KEY_TILE,
            {0, tile * Shape::BLOCK_K, args.k.stride[1] ? place.kv_head : 0, args.k.stride[0] ? place.batch : 0},
            EVICT_LAST);
        key.advance();
    }
    __device__ __forceinline__ void load_values(int tile) const {
        shared.value_empty(value.stage).wait(value.parity ^ 1);
        const Barrier full = shared.value_full(value.stage);
        load_panels<Shape::V_PANELS, Shape::KEY_PANEL>(
            shared.value(value.stage), args.v_map, full, Shape::VALUE_TILE,
            {0, tile * Shape::BLOCK_K, args.v.stride[1] ? place.kv_head : 0, args.v.stride[0] ? place.batch : 0},
            EVICT_LAST);
        value.advance();
    }
};

// The producer: one thread issues all TMA loads.
template <class Shape, class Args>
__device__ __forceinline__ void flash_produce(const FlashShared<Shape>& shared, const Args& args) {
    const int num_heads = int(args.num_heads), group = num_heads / int(args.num_kv_heads);
    const FlashBand<Shape> band(args);
    FlashTileScheduler<Shape> scheduler(args);
    Ring<Shape::QUERY_STAGES> query;
    Ring<Shape::STAGES> key, value;
    for (;;) {
        FlashTile work;
        const bool more = scheduler.next(work.tile, work.head);
        const Barrier query_full = shared.query_full(query.stage);
        shared.query_empty(query.stage).wait(query.parity ^ 1);
        if (!more) {
#ifdef BARACUDA_HOST_CHECK
            shared.work_tile(query.stage) = {};  // consumers read all of it
#endif
            shared.work_tile(query.stage).tile = -1;
            query_full.arrive();
            return;
        }
        FlashHead place;
        place.batch = work.head / num_heads;
        place.head = work.head - place.batch * num_heads;
        place.kv_head = place.head / group;
        const int first_query = work.tile * Shape::BLOCK_Q;
        work.first = band.touched(first_query);
        work.end = band.touched_end(min(first_query + Shape::BLOCK_Q, int(args.query_len)) - 1);
        shared.work_tile(query.stage) = work;

        load_panels<Shape::K_PANELS, Shape::QUERY_PANEL>(
            shared.query(query.stage), args.q_map, query_full, Shape::QUERY_TILE,
            {0, first_query, args.q.stride[1] ? place.head : 0, args.q.stride[0] ? place.batch : 0}, EVICT_FIRST);
        query.advance();
        if (Shape::BAND && work.first >= work.end) continue;

        const FlashLoads<Shape, Args> loads = {shared, args, value, key, place};
        loads.load_keys(work.end - 1);
#pragma unroll 1
        for (int tile = work.end - 1; tile > work.first; --tile) {
            loads.load_keys(tile - 1);
            loads.load_values(tile);
        }
        loads.load_values(work.first);
    }
}

constexpr float LOG2_E = 1.4426950408889634f;

// A weight is exp(factor (sign score - largest)). The maximum is taken before multiplying by factor, which must be
// positive: sign is -1 or 0 where the scale is negative or 0. lse is factor largest + offset + log(sum).
//
// With a cap, softcap tanh(x) = softcap - 2 softcap / (1 + exp(2 x)), and softmax does not see the first term: the
// score is -1 / (1 + exp(2 x)).
struct FlashScale {
    float sign, factor, offset;

    template <class Variant, class Args> __device__ static __forceinline__ FlashScale of(const Args& args) {
        if (Variant::SOFTCAP) return {1.0f, 2.0f * float(args.softcap), float(args.softcap)};
        const float scale = float(args.scale);
        return {scale > 0.0f ? 1.0f : scale < 0.0f ? -1.0f : 0.0f, scale == 0.0f ? 1.0f : fabsf(scale), 0.0f};
    }
    template <class Variant, class Args> __device__ static __forceinline__ float cap_slope(const Args& args) {
        return Variant::SOFTCAP ? 2.0f * LOG2_E * float(args.scale) / float(args.softcap) : 0.0f;
    }
};

// Below, a thread's fragment has elements of two rows, 8 apart: elements 4 j + 2 r and the next are of row r, columns
// 8 j and the next after the first.

template <int N> __device__ __forceinline__ void flash_cap(float (&score)[N], float slope) {
#pragma unroll
    for (int i = 0; i < N; ++i) score[i] = quick_reciprocal(-1.0f - quick_exp2(score[i] * slope));
}

// Masked scores become -inf. `query` is the first of the rows, `key` the first column's key.
template <class Shape, int N>
__device__ __forceinline__ void flash_mask(float (&score)[N], float sign, int query, int key,
                                           const FlashBand<Shape>& band) {
    if (sign != 1.0f) {
#pragma unroll
        for (int i = 0; i < N; ++i) score[i] *= sign;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int end = band.end(query + 8 * r) - key;
#pragma unroll
        for (int i = 2 * r; i < N; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (2 * i - 4 * r + e >= end) score[i + e] = -math::infinity<float>();
    }
    if (Shape::BAND && query + 8 + band.before > key) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int first = query + 8 * r + band.before - key;
#pragma unroll
            for (int i = 2 * r; i < N; i += 4)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (2 * i - 4 * r + e < first) score[i + e] = -math::infinity<float>();
        }
    }
}

// The reference of exponents: 0 if all scores so far are -inf, whose difference is undefined.
__device__ __forceinline__ float finite_or_zero(float largest) {
    return largest == -math::infinity<float>() ? 0.0f : largest;
}

// What the exponents of a row are multiplied by: a weight is exp2(unit (score - largest)). Where the rounding of the
// product with the largest could make that overflow, it is the power of two below the factor, whose products are exact:
// two scores are equal there, or one has no weight.
__device__ __forceinline__ float unit_of_exponents(float largest, float factor) {
    constexpr float FAR = 0x1p30f;
    return fabsf(largest * factor) < FAR ? factor : __uint_as_float(__float_as_uint(factor) & 0xff800000u);
}

// The maximum score of both rows; NaN is ignored here and reappears in the exponentials.
template <int N> __device__ __forceinline__ void flash_largest(const float (&score)[N], float (&largest)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float part[2] = {fmaxf(score[2 * r], score[2 * r + 1]), fmaxf(score[2 * r + 4], score[2 * r + 5])};
#pragma unroll
        for (int i = 2 * r + 8; i < N; i += 4) part[i / 4 % 2] = fmaxf(part[i / 4 % 2], fmaxf(score[i], score[i + 1]));
        largest[r] = fmaxf(part[0], part[1]);
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int r = 0; r < 2; ++r) largest[r] = fmaxf(largest[r], __shfl_xor_sync(ALL_LANES, largest[r], step));
}

// Whether a weight would exceed 2^8, as a row's `largest` may be behind its maximum. Then it becomes the maximum, and
// earlier sums are to be multiplied by `correction`.
template <int N>
__device__ __forceinline__ bool flash_move_largest(const float (&score)[N], float factor, float (&largest)[2],
                                                   float (&total)[2], float (&correction)[2]) {
    float now[2];
    flash_largest(score, now);
    const bool moves =
        __any_sync(ALL_LANES, !((now[0] - largest[0]) * factor <= 8.0f && (now[1] - largest[1]) * factor <= 8.0f));
    if (moves) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            now[r] = fmaxf(now[r], largest[r]);
            correction[r] = quick_exp2((largest[r] - finite_or_zero(now[r])) * factor);
            largest[r] = now[r];
            total[r] *= correction[r];
        }
    }
    return moves;
}

// Scores become weights, and `total` grows by this thread's.
template <int N>
__device__ __forceinline__ void flash_weigh(float (&score)[N], const float (&largest)[2], float factor,
                                            float (&total)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float from = finite_or_zero(largest[r]), unit = unit_of_exponents(from, factor), base = from * unit;
        float part[2] = {};
#pragma unroll
        for (int i = 2 * r; i < N; i += 4)
#pragma unroll
            for (int e = 0; e < 2; ++e) part[e] += score[i + e] = quick_exp2(fmaf(score[i + e], unit, -base));
        total[r] += part[0] + part[1];
    }
}

// A lane keeps its first word and swaps the second with the first of its neighbour, for which `upper` is set.
__device__ __forceinline__ void exchange(unsigned& first, unsigned& second, bool upper, int neighbour) {
    const unsigned other = __shfl_xor_sync(ALL_LANES, upper ? first : second, neighbour);
    if (upper) first = other;
    else second = other;
}

// Writes both rows of a fragment: four lanes exchange their pairs, so that each has 8 neighbours of every 32.
template <typename T, int N, class Args>
__device__ __forceinline__ void flash_store(const float (&sum)[N], const float (&total)[2], T* row, int query,
                                            const Args& args) {
    const int quad = threadIdx.x % 4;
    const bool odd = quad & 1, high = quad & 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const bool any = total[r] != 0.0f;
        const float inverse = 1.0f / total[r];
        T* to = row + (query + 8ll * r) * args.y.stride[2] + 8 * quad;
#pragma unroll
        for (int i = 2 * r; i < N; i += 16) {
            unsigned word[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                word[j] = any ? pack_halves<T>(sum[i + 4 * j] * inverse, sum[i + 4 * j + 1] * inverse) : 0;
            exchange(word[0], word[1], odd, 1);
            exchange(word[2], word[3], odd, 1);
            exchange(word[0], word[2], high, 2);
            exchange(word[1], word[3], high, 2);
            if (query + 8 * r < args.query_len && 2 * (i - 2 * r) + 8 * quad < args.d_v)
                __stwb(reinterpret_cast<uint4*>(to + 2 * (i - 2 * r)), make_uint4(word[0], word[1], word[2], word[3]));
        }
    }
}

template <class Variant, class Args>
__device__ __forceinline__ void flash_store_lse(const float (&largest)[2], const float (&total)[2], int batch, int head,
                                                int query, const Args& args) {
    const FlashScale scale = FlashScale::of<Variant>(args);
#pragma unroll
    for (int r = 0; r < 2; ++r)
        if (query + 8 * r < args.query_len)
            *args.lse.at(batch, head, query + 8 * r) = largest[r] * scale.factor + scale.offset + math::log(total[r]);
}

template <typename T, int N>
__device__ __forceinline__ void round_weights(unsigned (&weight)[N], const float (&score)[2 * N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) weight[i] = pack_halves<T>(score[2 * i], score[2 * i + 1]);
}

// A warp has read a buffer.
__device__ __forceinline__ void release_buffer(Barrier empty) {
    if (threadIdx.x % 32 == 0) empty.arrive();
}

template <class Shape> struct FlashQueryRing {
    const FlashShared<Shape>& shared;
    Ring<Shape::QUERY_STAGES>& query;

    __device__ __forceinline__ void release() const {
        release_buffer(shared.query_empty(query.stage));
        query.advance();
    }
};

template <class Shape> struct FlashKeyRing {
    const FlashShared<Shape>& shared;
    Ring<Shape::STAGES>& key;

    __device__ __forceinline__ void release() const {
        release_buffer(shared.key_empty(key.stage));
        key.advance();
    }
};

// Skips tiles of keys that only other warpgroups attend to.
template <class Shape> struct FlashSkip {
    const FlashShared<Shape>& shared;
    Ring<Shape::STAGES>& key;
    const FlashKeyRing<Shape>& key_ring;
    Ring<Shape::STAGES>& value;

    __device__ __forceinline__ void tiles(int tile, int end) const {
#pragma unroll 1
        for (; tile > end; --tile) {
            shared.key_full(key.stage).wait(key.parity);
            key_ring.release();
            shared.value_full(value.stage).wait(value.parity);
            release_buffer(shared.value_empty(value.stage));
            value.advance();
        }
    }
};

// The stages of a warpgroup of consumers, for a tile of queries. `score` is S, `weight` P, rounded, and `sum` O. The
// compiler orders registers by the members' order.
template <typename T, class Shape, class Variant, class Args> struct FlashConsumer {
    const FlashShared<Shape>& shared;
    const Args& args;
    const FlashBand<Shape>& band;
    const int &row, &full_end, &full;
    float (&score)[Shape::BLOCK_K / 2];
    Ring<Shape::STAGES>&key, &value;
    float (&sum)[Shape::DV / 2];
    unsigned (&weight)[Shape::BLOCK_K / 4];
    unsigned (&queries)[Shape::QUERY_WORDS];
    const Matrix &keys, &values, &own_queries;
    const float &factor, &slope;
    float (&largest)[2], (&total)[2], (&correction)[2];

    __device__ __forceinline__ void clear_sum() const {
#pragma unroll
        for (float& element : sum) element = 0.0f;
    }

    // S = Q K^T.
    __device__ __forceinline__ void multiply_keys() const {
        constexpr unsigned COLUMNS_16 = 32;  // bytes of a panel
        using Scores = Wgmma<T, Shape::BLOCK_K>;
        const Matrix matrix = keys + key.stage * Shape::KEY_TILE;
        Matrix a = own_queries;
        asm volatile("" : "+r"(a.start));  // its steps are added here, not kept in registers along the loop
#pragma unroll
        for (int step = 0; step < Shape::DK / 16; ++step) {
            const unsigned column = step % 4 * COLUMNS_16;
            const Matrix b = matrix + (step / 4 * Shape::KEY_PANEL + column);
            if (Shape::QUERY_REGISTERS)
                Scores::template registers<false>(score, queries + 4 * step % Shape::QUERY_WORDS, b, step == 0);
            else Scores::template shared<false>(score, a + (step / 4 * Shape::QUERY_PANEL + column), b, step == 0);
        }
        wgmma_commit();
    }

    // O += P V.
    __device__ __forceinline__ void multiply_values() const {
        constexpr unsigned ROWS_16 = 16 * 128;  // bytes of a panel
        const Matrix matrix = values + value.stage * Shape::VALUE_TILE;
#pragma unroll
        for (int step = 0; step < Shape::BLOCK_K / 16; ++step)
            Wgmma<T, Shape::DV>::template registers<true>(sum, weight + 4 * step, matrix + step * ROWS_16, false);
        wgmma_commit();
    }

    __device__ __forceinline__ void cap_and_mask(int tile) const {
        if (Variant::SOFTCAP) flash_cap(score, slope);
        if (tile >= full_end || (Shape::BAND && tile < full))
            flash_mask<Shape>(score, FlashScale::of<Variant>(args).sign, row,
                              tile * Shape::BLOCK_K + threadIdx.x % 4 * 2, band);
    }

    __device__ __forceinline__ void rescale_sum() const {
#pragma unroll
        for (int i = 0; i < Shape::DV / 2; ++i) sum[i] *= correction[i / 2 % 2];
    }

    // S and P of the first tile, while there is no O yet.
    __device__ __forceinline__ void first_tile(const FlashKeyRing<Shape>& key_ring, int tile) const {
        shared.key_full(key.stage).wait(key.parity);
        wgmma_fence();
        multiply_keys();
        wgmma_wait<0>();
        fence_operand(score);
        key_ring.release();
        cap_and_mask(tile);
        flash_largest(score, largest);
        flash_weigh(score, largest, factor, total);
        round_weights<T>(weight, score);
        shared.value_full(value.stage).wait(value.parity);
    }

    // S and P of a tile, and O of the tile before. `zero` is 0.
    __device__ __forceinline__ void next_tile(const FlashKeyRing<Shape>& key_ring, int tile, unsigned zero) const {
        shared.key_full(key.stage).wait(key.parity);
        fence_operand(score);
        fence_operand(weight);
        fence_operand(sum);
        wgmma_fence();
        multiply_keys();
        multiply_values();
        wgmma_wait<1>();
        fence_operand(score);
        key_ring.release();
        cap_and_mask(tile);
        const bool moves = flash_move_largest(score, factor, largest, total, correction);
        flash_weigh(score, largest, factor, total);
        fence_operand(score);

        // ptxas would move the wait for the products above the exponentials that should overlap with them. It does not
        // move it across a loop: the wait for the next values is one, and its parity appears to depend on every
        // exponential.
        const Barrier used = shared.value_empty(value.stage);
        value.advance();
        const unsigned weighed = __float_as_uint(total[0]) | __float_as_uint(total[1]);
        shared.value_full(value.stage).wait(value.parity ^ (weighed & zero));
        wgmma_wait<0>();
        fence_operand(sum);
        fence_operand(weight);
        release_buffer(used);
        round_weights<T>(weight, score);
        if (moves) rescale_sum();
    }

    // O of the last tile, and the sum of its weights over the lanes.
    __device__ __forceinline__ void last_product() const {
        fence_operand(weight);
        fence_operand(sum);
        wgmma_fence();
        multiply_values();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            total[r] += __shfl_xor_sync(ALL_LANES, total[r], 1);
            total[r] += __shfl_xor_sync(ALL_LANES, total[r], 2);
        }
        wgmma_wait<0>();
        fence_operand(sum);
        release_buffer(shared.value_empty(value.stage));
        value.advance();
    }
};

// A warpgroup of consumers; `place` is its number.
template <typename T, class Shape, class Variant, class Args>
__device__ __forceinline__ void flash_consume(const FlashShared<Shape>& shared, int place, const Args& args) {
    const int lane = threadIdx.x % 32, warp_row = 64 * place + threadIdx.x / 32 % 4 * 16;
    const float factor = FlashScale::of<Variant>(args).factor * LOG2_E;
    const float slope = FlashScale::cap_slope<Variant>(args);
    const FlashBand<Shape> band(args);
    // 0, which the compiler does not know: an absent tensor has no stride.
    const unsigned zero = unsigned(args.mask.stride[0]);
    const Matrix keys = Matrix::at(shared.key(0), 0), values = Matrix::at(shared.value(0), Shape::KEY_PANEL);
    Ring<Shape::QUERY_STAGES> query;
    Ring<Shape::STAGES> key, value;

    for (;;) {
        shared.query_full(query.stage).wait(query.parity);
        const FlashTile work = FlashTile::read(shared.work_tile(query.stage));
        if (work.tile < 0) return;
        const int row = work.tile * Shape::BLOCK_Q + warp_row + lane / 4;

        // The tiles of this warpgroup, and those without masked scores, [full, full_end).
        const int first_row = work.tile * Shape::BLOCK_Q + 64 * place;
        int first = work.first, end = work.end;
        if (Shape::PASSES) {
            first = max(first, band.touched(first_row));
            end = first_row < args.query_len ? min(end, band.touched_end(first_row + 63)) : 0;
        }
        int full = 0, full_end = 0;
        if (FlashScale::of<Variant>(args).sign == 1.0f) {
            full = band.full(first_row + 63);
            full_end = band.full_end(first_row);
        }

        const Matrix own_queries = Matrix::at(shared.query(query.stage) + place * (64 * 128), 0);
        float score[Shape::BLOCK_K / 2], sum[Shape::DV / 2];
        unsigned weight[Shape::BLOCK_K / 4], queries[Shape::QUERY_WORDS];
        float largest[2] = {-math::infinity<float>(), -math::infinity<float>()}, total[2] = {};
        float correction[2];
        const FlashQueryRing<Shape> query_ring = {shared, query};
        const FlashKeyRing<Shape> key_ring = {shared, key};
        const FlashSkip<Shape> skip = {shared, key, key_ring, value};
        const FlashConsumer<T, Shape, Variant, Args> consumer = {
            shared, args,    band, row,    full_end,    full,   score, key,     value, sum,
            weight, queries, keys, values, own_queries, factor, slope, largest, total, correction};
        if (Shape::QUERY_REGISTERS) {
            const unsigned r = warp_row + lane % 16;
#pragma unroll
            for (int step = 0; step < Shape::DK / 16; ++step) {
                const unsigned chunk = 2 * (step % 4) + lane / 16;
                const unsigned from =
                    shared.query(query.stage) + step / 4 * Shape::QUERY_PANEL + r * 128 + ((chunk ^ r % 8) << 4);
                ldmatrix_x4(queries + 4 * step, from);
            }
            fence_operand(queries);
            __syncwarp();
            query_ring.release();
        }
        consumer.clear_sum();
        if (Shape::PASSES) skip.tiles(work.end, max(end, work.first));
        if (first < end) {
            consumer.first_tile(key_ring, end - 1);
#pragma unroll 1
            for (int tile = end - 2; tile >= first; --tile) consumer.next_tile(key_ring, tile, zero);
            if (!Shape::QUERY_REGISTERS) query_ring.release();
            consumer.last_product();
        } else if (!Shape::QUERY_REGISTERS) {
            __syncwarp();
            query_ring.release();
        }
        if (Shape::PASSES) skip.tiles(min(first, end), work.first);

        const int batch = work.head / int(args.num_heads), head = work.head - batch * int(args.num_heads);
        if (lane % 4 == 0) flash_store_lse<Variant>(largest, total, batch, head, row, args);
        flash_store(sum, total, args.y.at(batch, head), row, args);
    }
}

template <typename T, class Schedule, class Variant, class Args>
__device__ __forceinline__ void flash_sdpa_main(const Args& args) {
    using Shape = FlashShape<Schedule, Variant>;
    DYN_SHARED(unsigned char, dynamic);
    const unsigned pad = -shared_address(dynamic) & 1023;  // panels start at multiples of 1024
    static_assert(reserves(1024 + Shape::WORK_TILE + Shape::QUERY_STAGES * sizeof(FlashTile), 1024),
                  "the launch reserves FlashShared");
    const FlashShared<Shape> shared = {shared_address(dynamic) + pad};
    const int warpgroup = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);  // the same register in all lanes
    if (threadIdx.x == 0) shared.init();
    __syncthreads();
    if (warpgroup == 0) {
        deallocate_registers<Shape::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) flash_produce(shared, args);
    } else {
        allocate_registers<Shape::CONSUMER_REGISTERS>();
        flash_consume<T, Shape, Variant>(shared, warpgroup - 1, args);
    }
}

}  // namespace baracuda
