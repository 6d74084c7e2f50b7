// Reductions by an index: a kept cell reduces the positions whose key is its place along an axis, and reads no others.
// The plan orders positions by key first: those of one key are a list, ascending, and cells of one key a list have.
//
// The kernel of ORDER sorts keys and positions, digit by digit from the lowest on, each digit in two launches: blocks
// count the digits of a chunk of neighbouring keys; then they find where each digit of theirs goes and move the keys
// there, in the order in which they come. A last launch finds where each list starts. Nothing depends on timing.
//
// The kernel of LISTS reduces. A long list is cut into sections, counted from its start, each of which a block reduces
// in a first launch. In the second, a thread has a pack of neighbouring cells of a list: it reduces the list's terms,
// or those of its sections. Cells of lists without positions are written in the same pass.
#pragma once

#include <baracuda/map/walk.cuh>

namespace baracuda {

// Cells of a list are counted along the axes that are neither reduced nor of lists; they are neighbours in the space.
struct Lists {
    long long count, cells;        // lists, and cells of each
    long long magic, shift;        // to divide by `cells`
    long long keys, step;          // a key is below `keys`; the lists of neighbouring keys are `step` apart
    long long positions;           // of all groups: cells of the space of keys
    long long section;             // the most positions of a list that are reduced at once
    long long passes, bits;        // of the sort, and of a digit of it
    long long per_chunk;           // positions whose digits a block counts
    long long group[1][MAX_AXES];  // the list of key 0, along the outer axes of keys
    unsigned *key, *position;      // in order
    unsigned *spare_key, *spare_position;
    unsigned* digits;  // [chunks, digits]: how often each comes
    unsigned* start;   // of each list, and the end of the last

    __device__ unsigned list_of(unsigned cell) const { return cells == 1 ? cell : divide(cell, magic, shift); }
};

template <int OPERANDS> struct ListArgs : WalkArgs<OPERANDS> {
    Lists lists;
};

constexpr int DIGITS = 512, KEYS = 4;  // of a digit at most; that a thread has at a time

// The list that a position is of; one beyond the last if there is none.
template <class Program, class Args> __device__ unsigned list_of(const Args& args, unsigned position) {
    const Lists& lists = args.lists;
    constexpr int OPERAND = ArrayOf<Program::KEYS>::OPERAND;
    const index_t group[1] = {position / unsigned(args.inner.count)};
    const index_t cell[1] = {position - group[0] * unsigned(args.inner.count)};
    index_t from[1][Args::OPERANDS], by[1][Args::OPERANDS], first[1][1];
    locate<0>(from, group, args.outer, args.outer_stride);
    locate<0>(by, cell, args.inner, args.inner_stride);
    locate<0>(first, group, args.outer, lists.group);
    const i64 key = i64((args.*Program::KEYS).data[offset_of(from[0][OPERAND] + by[0][OPERAND])]);
    const bool exists = u64(key) < u64(lists.keys);
    return exists ? unsigned(first[0][0]) + unsigned(key) * unsigned(lists.step) : unsigned(lists.count);
}

// Keys and positions before and after a pass of the sort: the last one leaves them in order.
struct SortPass {
    int number;
    bool to_spare;
    __device__ SortPass(const Lists& lists, int number)
        : number(number), to_spare((int(lists.passes) - 1 - number) & 1) {}
    template <class Program, class Args> __device__ unsigned key(const Args& args, unsigned at) const {
        if (number == 0) return list_of<Program>(args, at);
        return (to_spare ? args.lists.key : args.lists.spare_key)[at];
    }
    // Where along the axes that are reduced it is.
    template <class Args> __device__ unsigned position(const Args& args, unsigned at) const {
        if (number == 0) return at % unsigned(args.inner.count);
        return (to_spare ? args.lists.position : args.lists.spare_position)[at];
    }
    __device__ void put(const Lists& lists, unsigned at, unsigned key, unsigned position) const {
        (to_spare ? lists.spare_key : lists.key)[at] = key;
        (to_spare ? lists.spare_position : lists.position)[at] = position;
    }
};

// Neighbouring keys that a block has at a time; a warp's are neighbours, and how often it has seen each digit.
template <int THREADS> struct SortTile {
    static constexpr int WARPS = THREADS / WARP, SIZE = THREADS * KEYS, OWN = DIGITS / THREADS;
    static_assert(DIGITS % THREADS == 0, "every thread has digits of its own");
    unsigned (&seen)[WARPS][DIGITS];
    unsigned key[KEYS], digit[KEYS], rank[KEYS];
    bool exists[KEYS];

    __device__ explicit SortTile(unsigned (&seen)[WARPS][DIGITS]) : seen(seen) {}
    __device__ static int warp() { return threadIdx.x / WARP; }
    __device__ static unsigned place(unsigned from, int k) {
        return from + (warp() * KEYS + k) * WARP + threadIdx.x % WARP;
    }
    __device__ void clear() {
        for (int i = threadIdx.x; i < WARPS * DIGITS; i += THREADS) seen[i / DIGITS][i % DIGITS] = 0;
        __syncthreads();
    }
    // Keys [from, end), and for each how many of its digit its warp has seen before.
    template <class Program, class Args>
    __device__ void count(const Args& args, const SortPass& pass, unsigned from, unsigned end) {
        const unsigned below = (1u << threadIdx.x % WARP) - 1;
#pragma unroll
        for (int k = 0; k < KEYS; ++k) {
            exists[k] = place(from, k) < end;
            key[k] = exists[k] ? pass.key<Program>(args, place(from, k)) : 0;
        }
#pragma unroll
        for (int k = 0; k < KEYS; ++k) {
            digit[k] = key[k] >> int(pass.number * args.lists.bits) & ((1u << int(args.lists.bits)) - 1);
            const unsigned alike = __match_any_sync(ALL_LANES, exists[k] ? digit[k] : unsigned(DIGITS));
            unsigned& of = seen[warp()][digit[k]];
            const unsigned before = exists[k] ? of : 0;
            __syncwarp();
            if (exists[k] && (alike & below) == 0) of = before + __popc(alike);
            __syncwarp();
            rank[k] = before + __popc(alike & below);
        }
    }
};

// The sum of what the threads before have; all threads of the block take part.
template <int THREADS> __device__ unsigned sum_before(unsigned own) {
    __shared__ unsigned totals[THREADS / WARP];
    const int lane = threadIdx.x % WARP;
    unsigned sum = own;
#pragma unroll
    for (int away = 1; away < WARP; away *= 2) {
        const unsigned other = __shfl_up_sync(ALL_LANES, sum, away);
        if (lane >= away) sum += other;
    }
    if (lane == WARP - 1) totals[threadIdx.x / WARP] = sum;
    __syncthreads();
    unsigned before = sum - own;
    for (int w = 0; w < int(threadIdx.x) / WARP; ++w) before += totals[w];
    return before;
}

// The positions whose keys a block has.
struct Chunk {
    unsigned begin, end;
    __device__ explicit Chunk(const Lists& lists) {
        const unsigned size = unsigned(lists.per_chunk), most = unsigned(lists.positions);
        begin = blockIdx.x * size;
        end = most - begin < size ? most : begin + size;
    }
};

template <class Program, int THREADS, class Args>
__device__ void count_digits(const Args& args, const SortPass& pass, SortTile<THREADS>& tile) {
    using Tile = SortTile<THREADS>;
    const Chunk chunk(args.lists);
    tile.clear();
    for (unsigned from = chunk.begin; from < chunk.end; from += Tile::SIZE)
        tile.template count<Program>(args, pass, from, chunk.end);
    __syncthreads();
    for (int d = threadIdx.x; d < DIGITS; d += THREADS) {
        unsigned all = 0;
#pragma unroll
        for (int w = 0; w < Tile::WARPS; ++w) all += tile.seen[w][d];
        args.lists.digits[blockIdx.x * DIGITS + d] = all;
    }
}

template <class Program, int THREADS, class Args>
__device__ void move_keys(const Args& args, const SortPass& pass, SortTile<THREADS>& tile) {
    using Tile = SortTile<THREADS>;
    constexpr int OWN = Tile::OWN;
    const Lists& lists = args.lists;
    const Chunk chunk(lists);
    // Where the next key of each of the thread's digits goes.
    unsigned next[OWN] = {}, all[OWN] = {}, own = 0;
#pragma unroll 8
    for (unsigned c = 0; c < gridDim.x; ++c) {
#pragma unroll
        for (int d = 0; d < OWN; ++d) {
            const unsigned count = lists.digits[c * DIGITS + threadIdx.x * OWN + d];
            all[d] += count;
            next[d] += c < blockIdx.x ? count : 0;
        }
    }
#pragma unroll
    for (int d = 0; d < OWN; ++d) own += all[d];
    unsigned before = sum_before<THREADS>(own);
#pragma unroll
    for (int d = 0; d < OWN; ++d) {
        next[d] += before;
        before += all[d];
    }
    for (unsigned from = chunk.begin; from < chunk.end; from += Tile::SIZE) {
        __syncthreads();  // the last tile has been moved
        tile.clear();
        tile.template count<Program>(args, pass, from, chunk.end);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < OWN; ++d)
#pragma unroll
            for (int w = 0; w < Tile::WARPS; ++w) {
                unsigned& of = tile.seen[w][threadIdx.x * OWN + d];
                const unsigned count = of;
                of = next[d];
                next[d] += count;
            }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KEYS; ++k)
            if (tile.exists[k])
                pass.put(lists, tile.seen[Tile::warp()][tile.digit[k]] + tile.rank[k], tile.key[k],
                         pass.position(args, Tile::place(from, k)));
    }
}

// Where each list starts: the first place in the order whose key is no smaller.
__device__ inline void find_starts(const Lists& lists, unsigned list) {
    if (list > unsigned(lists.count)) return;
    unsigned first = 0, left = unsigned(lists.positions);
    while (left > 0) {
        const unsigned half = left / 2;
        const bool smaller = lists.key[first + half] < list;
        first += smaller ? half + 1 : 0;
        left = smaller ? left - half - 1 : half;
    }
    lists.start[list] = first;
}

template <class Program, class Args> __device__ void order_positions(const Args& args) {
    const SortPass pass(args.lists, int(args.stage) / 2);
    wait_on_dependent_grids();
    if (pass.number == args.lists.passes) return find_starts(args.lists, blockIdx.x * blockDim.x + threadIdx.x);
    using Tile = SortTile<Schedule::THREADS>;
    __shared__ unsigned seen[Tile::WARPS][DIGITS];
    Tile tile(seen);
    if (args.stage % 2 == 0) return count_digits<Program>(args, pass, tile);
    move_keys<Program>(args, pass, tile);
}

// Packs never reach into another list: the plan sees to it.
constexpr int LIST_LANES = LAYOUT == Layout::PACKED ? 16 / sizeof(Element) : 1;

// Adds the terms at places [begin, end) in the order, of which each slice takes every slices-th.
template <class Program, int N, class Args, class Parts, class Share>
__device__ void add_positions(const Args& args, Parts& parts, const RunOf<Args, N>& origin, int live, unsigned begin,
                              unsigned end, const Share& share) {
    constexpr int PACKS = Schedule::PACKS;
#pragma unroll 1
    for (unsigned first = begin + share.slice; first < end; first += share.slices * PACKS) {
        RunOf<Args, N> run[PACKS];
        int valid[PACKS];
        index_t position[PACKS], by[PACKS][Args::OPERANDS];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const unsigned at = first + k * share.slices;
            valid[k] = at < end ? live : 0;
            position[k] = args.lists.position[at < end ? at : first];
        }
        locate<0>(by, position, args.inner, args.inner_stride);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            run[k] = origin;
            run[k].move(by[k]);
        }
        typename Program::template Reduced<Step<PACKS, N>::template Terms> terms;
        compute_terms<Program, N>(args, run, valid, terms, 0);
        Parts::each([&](auto& of) { of.template pair_up<PACKS>(0); }, terms);
        Parts::each([&](auto& part, auto& of) { part.add(of); }, parts, terms);
    }
}

// A part of a long list, and where what it makes is kept: a list has its own places, since its sections but the first
// start in different windows of as many positions, and two lists that are long start in different ones.
struct Section {
    unsigned list, begin, end;
    bool exists = false;

    __device__ static unsigned slot(unsigned start, unsigned number, unsigned size) {
        return 2 * (start / size + number) + (number == 0);
    }
    __device__ Section(const Lists& lists, unsigned slot) {
        const unsigned size = unsigned(lists.section), window = slot / 2 * size;
        const bool is_first = slot % 2;
        const unsigned seen = is_first ? window + size : window;  // a place of the list, if there is one
        if (seen >= unsigned(lists.positions)) return;
        list = lists.key[seen];
        if (list >= unsigned(lists.count)) return;
        const unsigned start = lists.start[list], last = lists.start[list + 1];
        if (last - start <= size) return;
        begin = is_first ? start : start + (window - start + size - 1) / size * size;
        end = last - begin < size ? last : begin + size;
        exists = is_first ? window <= start && start < seen : start < window && begin < last;
    }
};

// Block (x, y): section x, cells from y on.
template <class Program, class Args> __device__ void reduce_sections(const Args& args) {
    constexpr int N = LIST_LANES;
    using Parts = typename Program::template Reduced<Owned<N>::template Parts>;
    const Share<Schedule::THREADS, false> share(args.cut.reduce_bits);
    const Section section(args.lists, blockIdx.x);
    if (!section.exists) return;
    unsigned char* const scratch = slice_scratch<N, typename Program::template Reduced<SizeOf>, Schedule::THREADS>();
    const unsigned cells = unsigned(args.lists.cells), step = share.owners * N;
    for (unsigned from = blockIdx.y * step; from < cells; from += gridDim.y * step) {
        const unsigned cell = from + share.owner * N;
        const int live = live_of<N>(cell, cells);
        RunOf<Args, N> origin;
        origin.find(index_t(section.list) * cells + cell, index_t(1), live, args.outer, args.outer_stride);
        Parts parts;
        if (live) add_positions<Program, N>(args, parts, origin, live, section.begin, section.end, share);
        typename Program::template Reduced<Owned<N>::template Values> values;
        Parts::each([&](auto& value, auto& part) { value.reduce_slices(part, share, scratch); }, values, parts);
        if (share.slice != 0 || !live) continue;
        const index_t to = index_t(blockIdx.x) * cells + cell;
        Parts::each([&](auto& value, auto& of) { value.write(of + to, 1, live); }, values, args.parts);
    }
}

// Adds what the sections of a list made of the cells from `cell` on.
template <int N, class Args, class Parts, class Share>
__device__ void add_sections(const Args& args, Parts& parts, unsigned cell, unsigned begin, unsigned end,
                             const Share& share) {
    const unsigned size = unsigned(args.lists.section), count = (end - begin + size - 1) / size;
    const auto add = [&](auto& part, auto& from) {
#pragma unroll 4
        for (unsigned s = share.slice; s < count; s += share.slices) {
            const auto* const of = from + index_t(Section::slot(begin, s, size)) * index_t(args.lists.cells) + cell;
#pragma unroll
            for (int i = 0; i < N; ++i) part.of[i].add(of[i]);
        }
    };
    Parts::each(add, parts, args.parts);
}

// A block has TURNS times as many packs of cells as it has owners, so that it waits once for where their lists start.
template <class Program, class Args> __device__ void reduce_lists(const Args& args) {
    constexpr int N = LIST_LANES, THREADS = Schedule::THREADS, TURNS = 4;
    using Parts = typename Program::template Reduced<Owned<N>::template Parts>;
    const Share<THREADS, false> share(args.cut.slice_bits);
    const unsigned cells = unsigned(args.lists.cells), turn = share.owners * N;
    const index_t from = index_t(blockIdx.x) * (turn * TURNS), left = index_t(args.outer.count) - from;
    const unsigned here = left < index_t(turn * TURNS) ? unsigned(left) : turn * TURNS;
    const unsigned list = unsigned(from / cells), column = unsigned(from - index_t(list) * cells);
    __shared__ unsigned start[THREADS * TURNS + 2];
    for (unsigned l = threadIdx.x; l <= args.lists.list_of(column + here - 1) + 1; l += THREADS)
        start[l] = args.lists.start[list + l];
    __syncthreads();
    unsigned char* const scratch = slice_scratch<N, typename Program::template Reduced<SizeOf>, THREADS>();
#pragma unroll 1
    for (unsigned t = 0; t < here; t += turn) {
        const unsigned beside = t + share.owner * N;
        const int live[1] = {live_of<N>(beside, here)};
        const unsigned of = live[0] ? args.lists.list_of(column + beside) : 0, cell = column + beside - of * cells;
        RunOf<Args, N> run[1];
        run[0].find(from + beside, index_t(1), live[0], args.outer, args.outer_stride);
        const unsigned begin = start[of], end = start[of + 1];
        typename Program::template Reduced<Owned<N>::template Values> values;
        if (share.slices == 1 && begin == end) {
            Parts::each([&](auto& value) { value.clear(); }, values);
        } else {
            Parts parts;
            if (live[0] && end - begin <= unsigned(args.lists.section)) {
                add_positions<Program, N>(args, parts, run[0], live[0], begin, end, share);
            } else if (live[0]) {
                add_sections<N>(args, parts, cell, begin, end, share);
            }
            Parts::each([&](auto& value, auto& part) { value.reduce_slices(part, share, scratch); }, values, parts);
        }
        if (share.slice == 0 && live[0]) store_values<Program, N>(args, run, live, values);
    }
}

template <class Program, class Args> __device__ void walk_lists(const Args& args) {
    wait_on_dependent_grids();
    if (args.stage == 0) return reduce_sections<Program>(args);
    reduce_lists<Program>(args);
}

}  // namespace baracuda
