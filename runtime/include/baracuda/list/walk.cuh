// The kernel of an op on lists of arrays: walks over their chunks, for a program that holds the op's math.
//
// Programs are those of maps (see map/walk.cuh), but a tensor with elements is an array of pointers, one for an array.
#pragma once

#include <baracuda/list/list.cuh>
#include <baracuda/map/reduce.cuh>

namespace baracuda {

// Set by the plan at compile time: the schedule, how many arrays of a list a launch may have, and the walk.
using Element = BARACUDA_ELEMENT;
struct Schedule {
    static constexpr int BARACUDA_SCHEDULE;
};
constexpr int ARRAYS = BARACUDA_ARRAYS;
constexpr Walk WALK = Walk::BARACUDA_WALK;
constexpr int WIDTH = 16 / sizeof(Element), CHUNK = Schedule::PACKS * Schedule::THREADS * WIDTH;
using ThreadPacks = ChunkPacks<WIDTH, Schedule::PACKS, Schedule::THREADS>;

// Of a pass that reduces, the launches are: the first, which leaves a part for each block; others, which add to it; and
// the last, whose only block adds up the parts.
enum Stage { FIRST, OTHERS, LAST };

// What the arguments of a kernel begin with.
template <int> struct WalkArgs {
    long long stage, count, chunks, blocks;  // `count` arrays of each list, cut into `chunks`
    long long size[ARRAYS];
    long long first[ARRAYS];  // chunk of each array
};
// An array of each of a list, as `Array` is one for all.
template <typename T, int OPERAND_, bool PRESENT_ = true> struct Arrays {
    using element_t = T;
    static constexpr int OPERAND = OPERAND_;
    static constexpr bool PRESENT = PRESENT_;
    T* data[ARRAYS];
};
template <class M> using ScratchOf = ThreadParts<M, 1>*;  // [blocks]

// The lanes of a thread's packs. `use` calls the program for a lane with what it has of the reductions there.
template <class P, int N, int PACKS, class Use> struct ListLanes {
    P& packs;
    const Use& use;
    template <class Compute> __device__ void each(const Compute& compute) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int i = 0; i < N; ++i) use(compute, PackLane<P>{packs, k, i});
    }
};

template <class Packs, class Args, class Use>
__device__ void compute_chunk(Packs& packs, const Args& args, const ThreadPacks& of, int array, const Use& use) {
    packs.reads(args, [&](auto& pack, auto* const(&data)[ARRAYS], int) { of.read(pack, data[array]); });
    packs.compute(args, ListLanes<Packs, WIDTH, Schedule::PACKS, Use>{packs, use});
    packs.writes(args, [&](const auto& pack, auto* const(&data)[ARRAYS], int) { of.write(pack, data[array]); });
}

// A block has one chunk.
template <class Program, class Args> __device__ void store_chunk(const Args& args) {
    const Chunk chunk = chunk_of<CHUNK>(blockIdx.x, args.first, args.size, int(args.count));
    Packs<typename Program::Cells, WIDTH, Schedule::PACKS> packs;
    compute_chunk(packs, args, ThreadPacks(chunk), chunk.array,
                  [](const auto& compute, const auto& lane) { compute(lane); });
}

// The terms of a chunk; what is stored of its elements is written.
template <class Program, class Args, class Parts>
__device__ void reduce_chunk(const Args& args, const Chunk& chunk, Parts& parts) {
    typename Program::template Reduced<Step<Schedule::PACKS, WIDTH>::template Terms> terms;
    Packs<typename Program::Terms, WIDTH, Schedule::PACKS> packs;
    const ThreadPacks of(chunk);
    compute_chunk(packs, args, of, chunk.array, [&](const auto& compute, const auto& lane) {
        typename Program::template Reduced<ValueOf> term;
        compute(lane, term);
        const bool exists = lane.i < of.live[lane.k];
        Parts::each([&](auto& all, auto& one) { all.set(lane.k, lane.i, one, exists); }, terms, term);
    });
    Parts::each([&](auto& of) { of.template pair_up<Schedule::PACKS>(0); }, terms);
    Parts::each([&](auto& part, auto& of) { part.add(of); }, parts, terms);
}

// Adds a block's value to its part.
template <class M> __device__ void keep_part(ThreadParts<M, 1>& part, const typename M::Value& value, bool is_first) {
    static_assert(sizeof(part) <= 64, "the plan reserves as many bytes");
    ThreadParts<M, 1> all;
    if (!is_first) all = part;
    all.add_value(value);
    part = all;
}

// A block has as many neighbouring chunks as others, and its threads' parts are added pairwise: the order of reduction
// depends on the sizes of the arrays alone.
template <class Program, class Args> __device__ void reduce_chunks(const Args& args) {
    using Reduced = typename Program::template Reduced<ValueOf>;
    const Share<Schedule::THREADS, true> share(31 - __clz(Schedule::THREADS));
    typename Program::template Reduced<Owned<1>::template Parts> parts;
    typename Program::template Reduced<Owned<1>::template Values> values;
    unsigned char* const scratch = slice_scratch<1, typename Program::template Reduced<SizeOf>, Schedule::THREADS>();
    const auto reduce = [&](auto& value, auto& part) { value.reduce_slices(part, share, scratch); };
    if (args.stage == LAST) {
        const auto add = [&](auto& part, auto* from) {
            for (int b = threadIdx.x; b < int(args.blocks); b += Schedule::THREADS) part.add_value(from[b].total(0));
        };
        Reduced::each(add, parts, args.parts);
        Reduced::each(reduce, values, parts);
        if (threadIdx.x > 0) return;
        Packs<typename Program::Epilogue, 1, 1> packs;
        const auto use = [&](const auto& compute, const auto& lane) {
            Reduced reduced = {};
            Reduced::each([](auto& one, auto& all) { one = all.of[0]; }, reduced, values);
            compute(lane, reduced);
        };
        packs.compute(args, ListLanes<decltype(packs), 1, 1, decltype(use)>{packs, use});
        return packs.writes(args, [](const auto& pack, auto* data, int) { *data = pack[0].lane[0]; });
    }
    const long long most = (args.chunks + args.blocks - 1) / args.blocks, begin = blockIdx.x * most;
    const long long end = begin + most < args.chunks ? begin + most : args.chunks;
    if (begin < end) {
        Chunk chunk = chunk_of<CHUNK>(begin, args.first, args.size, int(args.count));
        for (long long at = begin; at < end; ++at) {
            reduce_chunk<Program>(args, chunk, parts);
            chunk.begin += CHUNK;
            if (chunk.begin >= chunk.size && at + 1 < end) {
                ++chunk.array;
                chunk = {chunk.array, 0, args.size[chunk.array]};
            }
        }
    }
    Reduced::each(reduce, values, parts);
    const auto keep = [&](auto& value, auto* to) { keep_part(to[blockIdx.x], value.of[0], args.stage == FIRST); };
    if (threadIdx.x == 0) Reduced::each(keep, values, args.parts);
}

template <class Program, class Args> __device__ void walk(const Args& args) {
    if constexpr (WALK == Walk::CELLS) store_chunk<Program>(args);
    if constexpr (WALK == Walk::ROWS) reduce_chunks<Program>(args);
}

// Blocks per multiprocessor: those that reduce all run at the same time.
template <class> __device__ constexpr int blocks_per_sm() { return WALK == Walk::ROWS ? 4 : 1; }

}  // namespace baracuda
