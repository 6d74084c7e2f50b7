// Rows sorted by the number of their expert, rows of one expert in the order that they come in: a counting sort.
//
// count: block -> a chunk of neighbouring numbers, counted by expert. scan: warp -> an expert, whose counts become how
// many are in the chunks before each. place: block -> a chunk again; its warps rank their parts of it one step after
// the other, and equal numbers of a step by lane. copy: warp -> a part of a row, read once and written for each expert.
// Ints are counted, so that places depend on numbers alone. Numbers of no expert are those of one more, the last.
#pragma once

#include <baracuda/element.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {
namespace moe {

// As the spec has it.
template <class Schedule, class Args> __device__ long long chunks_of(const Args& args) {
    const long long chunks = (args.tokens * args.top_k + Schedule::CHUNK - 1) / Schedule::CHUNK;
    return chunks < 1 ? 1 : chunks < Schedule::MOST ? chunks : Schedule::MOST;
}

// The numbers of a chunk; each warp has its own part, in steps of a warp.
template <class Schedule, class Args> struct Chunk {
    static constexpr int THREADS = Schedule::THREADS, WARPS = THREADS / WARP;
    const Args& args;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int experts, top, first, part, end;

    __device__ Chunk(const Args& args) : args(args), experts(int(args.experts)), top(int(args.top_k)) {
        const long long slots = args.tokens * top;
        const long long steps = (slots + (long long)gridDim.x * THREADS - 1) / ((long long)gridDim.x * THREADS);
        part = int(steps * WARP);
        const long long begin = (long long)blockIdx.x * part * WARPS + (long long)warp * part;
        first = int(begin < slots ? begin : slots);
        end = int(begin + part < slots ? begin + part : slots);
    }
    // Calls f(slot, number) for each step of the warp; beyond the last slot the number is -1.
    template <class F> __device__ void each(const F& f) const {
        for (unsigned from = first; from < unsigned(end); from += WARP) {
            const int slot = int(from + lane);
            long long id = -1;
            if (from + lane < unsigned(end)) {
                id = *args.ids.at(slot / top, slot % top);
                if (id < 0 || id >= experts) id = experts;
            }
            f(slot, int(id));
        }
    }
};

// The sum of the block's values up to each thread, and of all of them.
template <int THREADS> __device__ int sum_up_to(int value, int& all, int (&sums)[THREADS / WARP]) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        const int before = __shfl_up_sync(ALL_LANES, value, step);
        if (lane >= step) value += before;
    }
    __syncthreads();  // the last sums have been read
    if (lane == WARP - 1) sums[warp] = value;
    __syncthreads();
    all = 0;
#pragma unroll
    for (int i = 0; i < THREADS / WARP; ++i) {
        if (i < warp) value += sums[i];
        all += sums[i];
    }
    return value;
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_count(const Args& args) {
    constexpr int COUNTERS = 8192;  // at a time
    __shared__ int counts[COUNTERS];
    const moe::Chunk<Schedule, Args> chunk(args);
    for (int low = 0; low <= chunk.experts; low += COUNTERS) {
        const int left = chunk.experts + 1 - low, counted = left < COUNTERS ? left : COUNTERS;
        for (int i = threadIdx.x; i < counted; i += Schedule::THREADS) counts[i] = 0;
        __syncthreads();
        chunk.each([&](int, int id) {
            if (id >= low && id - low < counted) atomicAdd(&counts[id - low], 1);
        });
        __syncthreads();
        for (int i = threadIdx.x; i < counted; i += Schedule::THREADS)
            args.before[(long long)(low + i) * gridDim.x + blockIdx.x] = counts[i];
        __syncthreads();
    }
}

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_scan(const Args& args) {
    const int lane = threadIdx.x % WARP, chunks = int(moe::chunks_of<Schedule>(args));
    const long long expert = (long long)blockIdx.x * (Schedule::THREADS / WARP) + threadIdx.x / WARP;
    if (expert > args.experts) return;
    int* const counts = args.before + expert * chunks;
    int before = 0;
    for (int from = 0; from < chunks; from += WARP) {
        const int own = from + lane < chunks ? counts[from + lane] : 0;
        int sum = own;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            const int other = __shfl_up_sync(ALL_LANES, sum, step);
            if (lane >= step) sum += other;
        }
        if (from + lane < chunks) counts[from + lane] = before + sum - own;
        before += __shfl_sync(ALL_LANES, sum, WARP - 1);
    }
    if (lane == 0) args.totals[expert] = before;
}

namespace moe {

// Calls f(slot, place) for the ids of a warp in [low, low + EXPERTS): the place is the next of its expert, of which
// `next` has the first; equal ids take places in their order.
template <int EXPERTS, class Chunk, class F>
__device__ void each_in_turn(const Chunk& chunk, int low, int (&next)[EXPERTS], const F& f) {
    chunk.each([&](int slot, int id) {
        const int expert = id >= low && id - low < EXPERTS ? id - low : -1;
        const unsigned equal = __match_any_sync(ALL_LANES, expert);
        const int rank = __popc(equal & ((1u << chunk.lane) - 1)), first = expert < 0 ? 0 : next[expert];
        __syncwarp();
        if (expert >= 0 && rank == 0) next[expert] = first + __popc(equal);
        __syncwarp();
        if (expert >= 0) f(slot, first + rank);
    });
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_place(const Args& args) {
    constexpr int THREADS = Schedule::THREADS, WARPS = THREADS / WARP;
    __shared__ int next[WARPS][THREADS], sums[WARPS];  // an expert of each thread at a time
    const moe::Chunk<Schedule, Args> chunk(args);
    const int experts = chunk.experts, own = threadIdx.x;
    int begin = 0;  // where the rows of these experts begin
    for (int low = 0; low <= experts; low += THREADS) {
#pragma unroll
        for (int i = 0; i < WARPS; ++i) next[i][own] = 0;
        __syncthreads();
        int (&of_warp)[THREADS] = next[chunk.warp];
        moe::each_in_turn(chunk, low, of_warp, [](int, int) {});
        __syncthreads();
        int count = 0;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) count += next[i][own];
        const int expert = low + own;
        const bool is_one = expert <= experts, alone = gridDim.x == 1;
        const int total = alone ? count : is_one ? args.totals[expert] : 0;
        int all;
        const int last = begin + moe::sum_up_to<THREADS>(total, all, sums);
        int place = last - total;
        if (!alone && is_one) place += args.before[(long long)expert * gridDim.x + blockIdx.x];
#pragma unroll
        for (int i = 0; i < WARPS; ++i) {
            const int of_one = next[i][own];
            next[i][own] = place;
            place += of_one;
        }
        __syncthreads();
        moe::each_in_turn(chunk, low, of_warp,
                          [&](int slot, int to) { *args.places.at(slot / chunk.top, slot % chunk.top) = to; });
        if (blockIdx.x == 0 && expert < experts) *args.ends.at(expert) = last;
        begin += all;
        __syncthreads();
    }
}

namespace moe {

// Stores a lane's packs of a row, from `column` on; they are STEP apart.
template <int STEP, typename T, int VEC, int PACKS>
__device__ void store_packs(T* to, const Pack<T, VEC> (&pack)[PACKS], long long column, long long width) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
        if (column + k * STEP < width) pack[k].store(to + column + k * STEP);
}

}  // namespace moe

template <typename T, class Schedule, class Variant, class Args>
__device__ void moe_permute_copy(const Args& args) {
    constexpr int VEC = 16 / int(sizeof(T)), PACKS = Schedule::PACKS, SPAN = WARP * VEC * PACKS;
    const int lane = threadIdx.x % WARP, top = int(args.top_k);
    const long long parts = (args.width + SPAN - 1) / SPAN;
    const long long item = (long long)blockIdx.x * (Schedule::THREADS / WARP) + threadIdx.x / WARP;
    const long long token = item / parts, begin = (item - token * parts) * SPAN;
    if (token >= args.tokens) return;
    const T* const from = args.x.at(token);
    const bool packed = args.width % VEC == 0 && are_packs<VEC>(args.x) && are_packs<VEC>(args.rows);
    Pack<T, VEC> pack[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long column = begin + (k * WARP + lane) * VEC;
        if (packed && column < args.width) pack[k].load(from + column);
    }
    for (int base = 0; base < top; base += WARP) {
        const int own = base + lane < top ? *args.places.at(token, base + lane) : 0;
        for (int j = base; j < top && j < base + WARP; ++j) {
            T* const to = args.rows.at(__shfl_sync(ALL_LANES, own, j - base));
            if (packed) {
                moe::store_packs<WARP * VEC>(to, pack, begin + lane * VEC, args.width);
            } else {
                for (long long i = begin + lane; i < begin + SPAN && i < args.width; i += WARP)
                    to[i * args.rows.stride[1]] = from[i * args.x.stride[1]];
            }
        }
    }
}

}  // namespace baracuda
