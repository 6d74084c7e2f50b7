// Serialised accumulation of dQ, in flash attention's backward pass for sm_90a: the blocks that own keys add to dq in a
// fixed order.
//
// dq of a query is a sum over tiles of keys, which different blocks own. A block has its part of a tile of queries in
// shared memory; TMA adds it to float sums in global memory once all earlier keys have been added: a semaphore for each
// tile of queries holds the next tile of keys. The first one stores, so that nothing needs zeroing.
//
// Blocks take their tiles of keys by ticket. A tile waits only for tiles with earlier tickets, which are running or
// done: there is no deadlock, however few blocks run at once. Which block takes which tile varies, results do not.
#pragma once

#include <baracuda/arch/flag.cuh>
#include <baracuda/arch/tensor_core.cuh>
#include <baracuda/attention/flash_forward_sm90.cuh>

namespace baracuda {

// `delta` has units of Shape::UNIT queries: lse in base 2 of each, then delta of each. A head has whole units, and
// unless SERIAL_DQ whole tiles of 128 queries. Queries that attend to nothing, and those beyond the last, have lse =
// infinity, which makes their weights 0.
//
// The index of a query's lse and delta in its unit. INTERLEAVED: in the order of wgmma fragments, so that a thread that
// has columns 2 t and the next of every 8 reads those of 16 columns at once.
template <bool INTERLEAVED> __device__ __forceinline__ constexpr int statistics_index(int query) {
    return INTERLEAVED ? query / 16 * 16 + query % 8 / 2 * 4 + query / 8 % 2 * 2 + query % 2 : query;
}

// Of a head.
template <class Shape, class Args> __device__ __forceinline__ int query_units(const Args& args) {
    constexpr int WHOLE = Shape::SERIAL_DQ ? Shape::UNIT : 128;
    return (int(args.query_len) + WHOLE - 1) / WHOLE * (WHOLE / Shape::UNIT);
}

// The band of own rows: the keys that a query attends to, or the queries that attend to a key.
template <class Shape, class Args> __device__ __forceinline__ FlashBand<Shape> band_of_own(const Args& args) {
    FlashBand<Shape> band(args);
    if (Shape::OWN_KEYS) {
        const int before = band.before;
        band.before = 1 - band.after;
        band.after = 1 - before;
        band.keys = int(args.query_len);
    }
    return band;
}

// `dq_order` has a FlashTile for each tile of OWN keys, in the order of tickets, then the number of tickets drawn, then
// for each unit of queries which tile of keys adds to its dq next.
template <int OWN, class Args> __device__ __forceinline__ int dq_tile_count(const Args& args) {
    return (int(args.key_len) + OWN - 1) / OWN * int(args.batch_size * args.num_kv_heads);
}
template <int OWN, class Args> __device__ __forceinline__ int* dq_tickets(const Args& args) {
    return args.dq_order + 4ll * dq_tile_count<OWN>(args);
}
template <int OWN, class Args> __device__ __forceinline__ int* dq_semaphore(const Args& args, int unit) {
    return dq_tickets<OWN>(args) + 1 + unit;
}
// The unit's sums of dq: first those of the first half of the columns, four of each of 128 threads at a time.
template <class Shape, class Args> __device__ __forceinline__ float* dq_sums(const Args& args, int unit) {
    return args.sums + unit * (long long)(Shape::UNIT * Shape::DK);
}

// Early keys of a head come first, which have most queries. As many heads as fit in the L2 cache are scheduled
// together, one tile of each in turn. All threads of the launch write the list; `Shape` is that of own keys.
//
// With a band, few tiles of a head at once are best: tiles that begin together end together, and wait for each other
// again. They read nearly the same queries, so more heads than fit in whole may run at once.
template <class Shape, class Args> __device__ __forceinline__ void schedule_dq_tiles(const Args& args) {
    constexpr int CACHED_QUERIES = L2_BYTES / (6 * Shape::DK + 2 * Shape::DV);  // with dy and sums of dq
    const int heads = int(args.batch_size * args.num_kv_heads), length = dq_tile_count<Shape::OWN>(args);
    const int tiles = length / heads, group = int(args.num_heads) / int(args.num_kv_heads);
    const int cached = max(1, CACHED_QUERIES / int(args.query_len) / group);
    const int section = Shape::BAND ? max(cached, min(4 * cached, 32)) : cached;
    const FlashBand<Shape> band = band_of_own<Shape>(args);
    const long long thread = (long long)(blockIdx.x) * blockDim.x + threadIdx.x;
    if (thread == 0) *dq_tickets<Shape::OWN>(args) = 0;
    for (long long next = thread; next < length; next += (long long)(gridDim.x) * blockDim.x) {
        const int ticket = int(next), part = ticket / tiles / section, index = ticket - part * section * tiles;
        const int width = min(section, heads - part * section), tile = index / width, first = tile * Shape::OWN;
        const FlashTile work = {tile, part * section + index - tile * width, band.touched(first),
                                band.touched_end(min(first + Shape::OWN, int(args.key_len)) - 1)};
        reinterpret_cast<FlashTile*>(args.dq_order)[ticket] = work;
    }
}

// The next tile of keys; false after the last.
template <class Shape, class Args> __device__ __forceinline__ bool draw_ticket(const Args& args, FlashTile& work) {
    const int ticket = atomicAdd(dq_tickets<Shape::OWN>(args), 1);
    if (ticket >= dq_tile_count<Shape::OWN>(args)) return false;
    work = reinterpret_cast<const FlashTile*>(args.dq_order)[ticket];
    return true;
}

// Waits until it is the turn of `tile`; earlier additions are then visible to this thread's copies.
__device__ __forceinline__ void semaphore_wait(const int* semaphore, int tile) {
    while (load_acquire(semaphore) != tile) {}
    fence_proxy_async();
}
// Adds `bytes` of floats in shared memory to those at `to`, or stores them. Returns when shared memory has been read.
__device__ __forceinline__ void add_floats(float* to, unsigned from, unsigned bytes, bool add) {
    if (add) add_bytes(to, from, bytes);
    else store_bytes(to, from, bytes);
    bulk_commit();
    bulk_wait_read<0>();
}
// Waits for this thread's additions to complete, then passes the turn to `next`.
__device__ __forceinline__ void semaphore_release(int* semaphore, int next) {
    bulk_wait<0>();
    fence_proxy_async();
    store_release(semaphore, next);
}

// The shape that makes FlashBand give tiles of own keys.
template <class Shape> struct SeenByQueries {
    static constexpr bool BAND = Shape::BAND;
    static constexpr int BLOCK_K = Shape::OWN;
};

// One of two threads that add to dq, each every other tile of queries: while one waits for its sums to reach memory,
// the other issues the next tile's. A thread waits for its turn before it waits for the sums.
template <class Shape, class Shared, class Args>
__device__ __forceinline__ void add_to_dq(const Shared& shared, unsigned which, const Args& args) {
    constexpr int OWN = Shape::OWN;
    constexpr unsigned OWN_PARITY = 4;  // bit of `state`, beside two for stage and parity of tiles of queries
    const FlashBand<SeenByQueries<Shape>> band(args);
    unsigned state = 0;
    for (;;) {
        shared.own_full().wait(state / OWN_PARITY);
        state ^= OWN_PARITY;
        const FlashTile work = shared.work_tile();
        shared.own_empty().arrive();
        if (work.tile < 0) return;
        const int group = int(args.num_heads) / int(args.num_kv_heads);
        int head = work.head * group;  // of all batches
#pragma unroll 1
        for (const int end = head + group; head < end; ++head)
#pragma unroll 1
            for (int tile = work.end - 1; tile >= work.first; --tile) {
                const unsigned stage = state % 2, parity = state / 2 % 2;
                state = (state & OWN_PARITY) | (state + 1) % OWN_PARITY;
                if (stage != which) continue;
                const bool begins = work.tile == band.touched(tile * Shape::STREAM);
                int unit = head * query_units<Shape>(args) + tile;
                if (!begins) semaphore_wait(dq_semaphore<OWN>(args, unit), work.tile);
                shared.staged_full(which).wait(parity);
                add_floats(dq_sums<Shape>(args, unit), shared.staged(which), Shape::STAGED_BYTES, !begins);
                shared.staged_empty(which).arrive();
                asm volatile("" : "+r"(unit));  // its addresses are not kept in registers
                semaphore_release(dq_semaphore<OWN>(args, unit), work.tile + 1);
            }
    }
}

// A warpgroup's rounded dS goes to shared memory, in panels of 16 queries: a row of 32 bytes for each key.
template <class Shape, class Shared, int N>
__device__ __forceinline__ void store_ds(const Shared& shared, Ring<2> ring, int place, const unsigned (&ds)[N]) {
    shared.ds_empty(ring.stage).wait(ring.parity ^ 1);
    const int lane = threadIdx.x % 32;
    const unsigned row = shared.ds(ring.stage) + (64 * place + threadIdx.x / 32 % 4 * 16 + lane % 16) * 32;
    const unsigned to = row + ((lane / 16 ^ lane / 4 % 2) << 4);
#pragma unroll
    for (int i = 0; i < N; i += 4) stmatrix_x4(to + i / 4 * Shape::DS_PANEL, ds + i);
    fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) shared.ds_full(ring.stage).arrive();
}

// The warpgroup's half of the columns of dq, as rows, from both warpgroups' dS.
template <typename T, class Shape, class Shared>
__device__ __forceinline__ void multiply_ds(const Shared& shared, Ring<2> ring, Matrix k, PanelMatrix<32> ds,
                                            float (&queries)[Shape::STREAM / 2]) {
    shared.ds_full(ring.stage).wait(ring.parity);
    wgmma_wait<0>();  // dv's product has ended: these sums take the place of its weights
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Shape::OWN / 16; ++step)
        Wgmma<T, Shape::STREAM>::template shared<true, true>(queries, k + step * (16 * 128), ds + step * (16 * 32),
                                                             step == 0);
    wgmma_commit();
}

// Stores the result to shared memory for add_to_dq, once TMA has read the tile before.
template <class Shape, class Shared, int N>
__device__ __forceinline__ void stage_queries(const Shared& shared, Ring<2> ring, int place,
                                              const float (&queries)[N]) {
    if (threadIdx.x % 32 == 0) shared.ds_empty(ring.stage).arrive();
    if (Shape::STAGED_TWICE) shared.staged_empty(ring.stage).wait(ring.parity ^ 1);
    else shared.staged_empty(ring.stage ^ 1).wait(ring.parity ^ ring.stage ^ 1);
    const unsigned to = shared.staged(ring.stage) + place * (Shape::STAGED_BYTES / 2) + threadIdx.x % 128 * 16;
#pragma unroll
    for (int i = 0; i < N; i += 4) store_shared_4(to + i * 512, queries + i);
}

// Signals that the stores are complete and TMA may read: later than the stores, which overlap with other products.
template <class Shared> __device__ __forceinline__ void publish_queries(const Shared& shared, unsigned stage) {
    fence_proxy_async_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.staged_full(stage).arrive();
}

// Warpgroup -> half of the columns of dq of a unit of queries, in order. Reads its sums once, unless the queries attend
// to no key, and writes dq: of a warp's 16 columns a lane has 8, of every other 8 queries.
template <typename T, class Shape, class Args> __device__ __forceinline__ void round_dq(const Args& args) {
    constexpr int HALF = Shape::DK / 2;
    const int index = int(blockIdx.x * (blockDim.x / 128) + threadIdx.x / 128), unit = index / 2, half = index % 2;
    const int units = query_units<Shape>(args), head = unit / units, lane = threadIdx.x % 32;
    if (head >= args.batch_size * args.num_heads) return;
    const bool odd = lane & 1, high = lane & 2, seen = *dq_semaphore<Shape::OWN>(args, unit) != 0;
    const int query = (unit - head * units) * Shape::UNIT + lane / 4 + 8 * high;
    const int column = half * HALF + threadIdx.x / 32 % 4 * 16 + 8 * odd;
    const float* from = dq_sums<Shape>(args, unit) + half * (Shape::UNIT * HALF) + threadIdx.x % 128 * 4;
    const float factor = float(args.scale);
#pragma unroll
    for (int i = 0; i < Shape::UNIT / 8; i += 2) {
        unsigned word[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (seen) sum = *reinterpret_cast<const float4*>(from + (i + j) * 512);
            word[2 * j] = movmatrix_trans(pack_halves<T>(sum.x * factor, sum.y * factor));
            word[2 * j + 1] = movmatrix_trans(pack_halves<T>(sum.z * factor, sum.w * factor));
            exchange(word[2 * j], word[2 * j + 1], odd, 1);
        }
        exchange(word[0], word[2], high, 2);
        exchange(word[1], word[3], high, 2);
        if (query + 8 * i < args.query_len && column < args.d_k) {
            T* const to = args.dq.at(head / args.num_heads, head % args.num_heads, query + 8 * i) + column;
            __stwb(reinterpret_cast<uint4*>(to), make_uint4(word[0], word[1], word[2], word[3]));
        }
    }
}

}  // namespace baracuda
