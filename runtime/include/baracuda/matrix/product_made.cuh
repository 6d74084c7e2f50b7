// Products with few rows, whose right factor is made while they run: `T((code - zero) * scale)` of codes of four bits,
// eight a word along the depth. Programs of this form have the types of what their cells read: Codes, Zero and Scale.
//
// block -> TOKENS rows of the result and 16 columns for each warp, which are the rows of its instructions
// warp  -> all of the depth, in order: sums are those of product_mma.cuh
//
// Left factors and words go through shared memory in a ring of STAGES buffers of BLOCK_K of the depth. In each run of
// 32 of the depth, a lane makes its part of two instructions' operands of a word's byte. Where zero points and scales
// change within a run, or zero points are no small whole numbers, and at the end of the depth, the program itself is
// computed, element by element.
#pragma once

#include <baracuda/arch/barrier.cuh>
#include <baracuda/map/read.cuh>
#include <baracuda/matrix/made_pair.cuh>
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

template <typename A, typename B> struct SameType {
    static constexpr bool VALUE = false;
};
template <typename A> struct SameType<A, A> {
    static constexpr bool VALUE = true;
};

constexpr int RUN = 32;    // of the depth: words of a pack of 16 bytes
constexpr int SLAB = 16;   // rows of an instruction
constexpr int PANEL = 64;  // of the depth: 128 bytes of the left factor

// A cell of the factor, for the program that makes it.
template <class Args, class P> struct MadeLane : PackLane<P> {
    const Args& args;
    long long side, depth;
    __device__ i64 index(int operand) const { return side * args.stride[operand][1] + depth * args.stride[operand][2]; }
};

// How cells read arrays.
template <class Args, class P> struct MadeRead {
    const MadeLane<Args, P>& lane;
    __device__ long long offset(int operand) const { return lane.index(operand); }
    template <typename T> __device__ void operator()(Pack<T, 1> (&pack)[1], const T* data, int operand) const {
        pack[0].lane[0] = data[offset(operand)];
    }
    template <class Still, class Held, class A, class Axes, typename Outside, class F>
    __device__ void at(Held (&pack)[1], const A& array, const Axes& axes, Outside outside, const F& place_of) const {
        PlaceOf<Axes> place;
        place_of(place.of, lane);
        pack[0].clear(outside);
        if (axes.contain(place.of))
            pack[0].load_if(array.data + offset(A::OPERAND) + axes.template offset<i64>(place.of), true);
    }
    template <class Axes> struct PlaceOf;
    template <int AXES> struct PlaceOf<PlacedAxes<AXES>> {
        i64 of[AXES];
    };
};

template <class Args, class P> struct MadeLanes {
    const MadeLane<Args, P>& lane;
    template <class Compute> __device__ void each(const Compute& compute) const { compute(lane); }
};

// Element (side, depth) of the factor as the program has it.
template <class Program>
__device__ __forceinline__ typename Program::T made_element(const typename Program::Args& args, long long side,
                                                            long long depth) {
    using Args = typename Program::Args;
    using Held = Packs<typename Program::Cells, 1, 1>;
    Held packs;
    const MadeLane<Args, Held> lane = {{packs, 0, 0}, args, side, depth};
    packs.reads(args, MadeRead<Args, Held>{lane});
    packs.compute(args, MadeLanes<Args, Held>{lane});
    return packs_out<typename Factors<Program>::Right>(packs)[0].lane[0];
}

// The places along the depth of what is read for a run; NONE where it is not one place for all of it.
template <class Program> struct RunPlaces {
    static constexpr int NONE = -1;
    long long first, last;
    int zero = NONE, scale = NONE;

    struct Lane {
        long long depth;
        __device__ i64 index(int) const { return depth; }
    };
    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read&, V, const A&, const Axes& axes, Outside, const F& place_of) {
        if constexpr (SameType<V, typename Program::Zero>::VALUE) zero = one(axes, place_of);
        if constexpr (SameType<V, typename Program::Scale>::VALUE) scale = one(axes, place_of);
    }
    template <class Axes, class F> __device__ int one(const Axes& axes, const F& place_of) const {
        i64 begin[1], end[1];
        place_of(begin, Lane{first});
        place_of(end, Lane{last});
        return begin[0] == end[0] && axes.contain(begin) && begin[0] < 0x7fffffff ? int(begin[0]) : NONE;
    }
};

// Where a row of zero points and one of scales are.
template <class Program> struct RunRows {
    using T = typename Program::T;
    long long side;
    const T *zero, *scale;
    long long zero_stride, scale_stride;

    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, const F&) {
        if constexpr (SameType<V, typename Program::Zero>::VALUE)
            zero = array.data + side * args.stride[A::OPERAND][1], zero_stride = axes.stride[0];
        if constexpr (SameType<V, typename Program::Scale>::VALUE)
            scale = array.data + side * args.stride[A::OPERAND][1], scale_stride = axes.stride[0];
    }
};

// Makes what each run of a block has for each of 16 rows, a pair of its zero point and one of its scale, by a warp:
// half of the lanes take the first runs, each lane one row.
template <class Program, int PACKS> struct PairMaker {
    using Args = typename Program::Args;
    using T = typename Program::T;
    using Pairs = MadePair<T>;
    static constexpr int COUNT = PACKS / 2, AT_ONCE = 32, NONE = RunPlaces<Program>::NONE;  // runs
    static_assert(PACKS % 2 == 0 && AT_ONCE % PACKS == 0, "lanes know the places of whole blocks");

    RunRows<Program> rows;
    int row, first;               // of the lane's rows and of its runs in a block
    int zero_place, scale_place;  // of one run of the next AT_ONCE
    unsigned changes, exist;      // of these runs, those that have others than the one before, and those that have some
    T zero[COUNT], scale[COUNT];  // on their way
    unsigned changed, known;      // of the lane's runs in a block

    __device__ __forceinline__ PairMaker(const Args& args, long long side)
        : row(lane() % SLAB), first(lane() / SLAB * COUNT) {
        rows.side = min(side + row, args.columns - 1);
        Program::Cells::places(rows, args, args);
    }
    __device__ __forceinline__ static int lane() { return int(threadIdx.x) % 32; }

    __device__ __forceinline__ void load(const Args& args, int block) {
        const int begin = block * PACKS % AT_ONCE;
        if (begin == 0) {
            const long long of_lane = ((long long)block * PACKS + lane()) * RUN;
            RunPlaces<Program> places = {of_lane, of_lane + RUN - 1};
            if (of_lane + RUN <= args.depth) Program::Cells::places(places, args, args);
            zero_place = places.zero, scale_place = places.scale;
            const int zero_before = __shfl_up_sync(ALL_LANES, zero_place, 1);
            const int scale_before = __shfl_up_sync(ALL_LANES, scale_place, 1);
            changes = __ballot_sync(ALL_LANES, zero_place != zero_before || scale_place != scale_before);
            exist = __ballot_sync(ALL_LANES, zero_place != NONE && scale_place != NONE);
        }
        changed = changes >> begin | changes >> (begin + COUNT) | 1;  // in either half
        known = exist >> (begin + first);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (!(changed >> i & 1)) continue;
            const int of_zero = __shfl_sync(ALL_LANES, zero_place, begin + first + i);
            const int of_scale = __shfl_sync(ALL_LANES, scale_place, begin + first + i);
            if (known >> i & 1) {
                zero[i] = read_line(rows.zero + of_zero * rows.zero_stride);
                scale[i] = read_line(rows.scale + of_scale * rows.scale_stride);
            }
        }
    }
    // Stores what was loaded: pairs[run][row], and which runs have exact ones in all rows, and any at all.
    __device__ __forceinline__ void store(unsigned* pairs, unsigned* fast, unsigned* some) const {
        u64 pair = 0;
        bool exact = false;
        unsigned own = 0;
        const unsigned has_some = in_all_rows(known & ((1u << COUNT) - 1));
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (changed >> i & 1) {
                exact = bool(known >> i & 1) & Pairs::is_exact(zero[i]);
                pair = Pairs::of(zero[i]) | u64(Pairs::of(scale[i])) << 32;
            }
            own |= unsigned(exact) << i;
            reinterpret_cast<u64*>(pairs)[(first + i) * SLAB + row] = pair;
        }
        const unsigned are_exact = in_all_rows(own);
        if (lane() == 0) *fast = are_exact, *some = has_some;
    }
    // Of all runs, those whose bit is set in each lane that has them.
    __device__ __forceinline__ unsigned in_all_rows(unsigned own) const {
        unsigned all = ALL_PACKS;
        if (!__any_sync(ALL_LANES, own != (1u << COUNT) - 1)) return all;
#pragma unroll 1
        for (int i = 0; i < PACKS; ++i)
            if (!__all_sync(ALL_LANES, i / COUNT * COUNT != first || (own >> i % COUNT & 1))) all &= ~(1u << i);
        return all;
    }
    static constexpr unsigned ALL_PACKS = PACKS == 32 ? ~0u : (1u << PACKS % 32) - 1;
};

// Where the words of codes are.
template <class Program> struct CodeWords {
    const unsigned* data;
    long long side_stride, stride, count;

    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, const F&) {
        if constexpr (SameType<V, typename Program::Codes>::VALUE) {
            data = reinterpret_cast<const unsigned*>(array.data);
            side_stride = args.stride[A::OPERAND][1], stride = axes.stride[0], count = axes.extent[0];
        }
    }
};

// Copies ROWS rows of PACKS packs of 16 bytes, block after block, by THREADS threads; zeros for what does not exist.
template <int ROWS, int PACKS, int THREADS> struct PackStream {
    static constexpr int AT_ONCE = THREADS / PACKS, COUNT = ROWS / AT_ONCE;  // rows
    static_assert(THREADS % PACKS == 0 && ROWS % AT_ONCE == 0, "threads share whole rows");

    const char* next;
    long long step, left;  // bytes to the thread's next row, and what is left of a row
    unsigned live;         // the thread's rows that exist
    int row, pack;

    template <typename T>
    __device__ __forceinline__ PackStream(const T* data, long long stride, long long rows, long long count, int thread)
        : step(AT_ONCE * stride * int(sizeof(T))), row(thread / PACKS), pack(thread % PACKS) {
        next = reinterpret_cast<const char*>(data + row * stride) + pack * 16;
        left = count * int(sizeof(T)) - pack * 16;
        unsigned exist = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) exist |= unsigned(row + i * AT_ONCE < rows) << i;
        live = unsigned(opaque(int(exist)));
    }
    // place(row, pack, beside) is where a pack goes, `beside` rows from one that is the same in every call.
    template <class Place> __device__ __forceinline__ void copy(const Place& place) {
        const char* from = next;
        if (left >= 16) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i, from += step)
                if (live >> i & 1) cp_async_cg(place(row, pack, i * AT_ONCE), from);
        } else {
            const int bytes = int(max(left, 0ll));
#pragma unroll 1
            for (int i = 0; i < COUNT; ++i, from += step)
                if (live >> i & 1) cp_async_cg(place(row, pack, i * AT_ONCE), from, bytes);
        }
        next += PACKS * 16;
        left -= PACKS * 16;
    }
    // Rows that do not exist, of which nothing is copied.
    template <class Place> __device__ __forceinline__ void clear(const Place& place) const {
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i)
            if (!(live >> i & 1)) *static_cast<uint4*>(place(row, pack, i * AT_ONCE)) = uint4{0, 0, 0, 0};
    }
};

// Half of the block's warps multiply what the others load.
template <class Program> struct MadeTile {
    using Of = Factors<Program>;
    using Args = typename Program::Args;
    using T = typename Program::T;
    using Multiply = Mma<T>;
    using Pairs = MadePair<T>;
    static constexpr int THREADS = Schedule::THREADS / 2, TOKENS = Schedule::TOKENS, BLOCK_K = Schedule::BLOCK_K;
    static constexpr int STAGES = Schedule::STAGES, SIDES = THREADS / 32 * SLAB, WIDE = TOKENS / 16;
    static constexpr int WORDS = BLOCK_K / 8, PACKS = BLOCK_K / RUN;  // of a row
    static constexpr int SPAN = PACKS & -PACKS;                       // an XOR with less than this stays within a row
    static constexpr int LEFT_BYTES = TOKENS * BLOCK_K * int(sizeof(T)), WORD_BYTES = SIDES * WORDS * 4;
    static constexpr int STAGE = LEFT_BYTES + WORD_BYTES + SIDES * PACKS * 8 + 128;
    static constexpr unsigned FULL = 1;  // a barrier
    // Panels of the depth, one after the other.
    using Left = SharedTile<T, TOKENS * BLOCK_K / PANEL, PANEL>;
    static_assert(sizeof(T) == 2 && TOKENS % 16 == 0 && SPAN == PACKS, "whole instructions and packs");

    const Args& args;
    unsigned char* shared;
    long long token, side;  // the first of the block

    __device__ __forceinline__ static int after(int slot) { return slot + 1 == STAGES ? 0 : slot + 1; }
    __device__ __forceinline__ Left left(int slot) const { return {reinterpret_cast<T*>(shared + slot * STAGE)}; }
    // Where a pack of words is, `beside` rows (a multiple of 8, if any) from one: those of 8 rows lie in different
    // banks.
    __device__ __forceinline__ unsigned* words(int slot, int row, int pack, int beside = 0) const {
        unsigned* const of_slot = reinterpret_cast<unsigned*>(shared + slot * STAGE + LEFT_BYTES);
        return of_slot + row * WORDS + (pack ^ (row & (SPAN - 1) & 7)) * 4 + beside * WORDS;
    }
    // Of one warp, pairs of its runs and rows, the runs that have exact ones, and those that have some.
    __device__ __forceinline__ unsigned* pairs(int slot, int warp) const {
        return fast(slot, 32) + warp * PACKS * SLAB * 2;
    }
    __device__ __forceinline__ unsigned* fast(int slot, int warp) const {
        return reinterpret_cast<unsigned*>(shared + slot * STAGE + LEFT_BYTES + WORD_BYTES) + warp;
    }
    __device__ __forceinline__ unsigned* some(int slot, int warp) const { return fast(slot, 16 + warp); }
    static_assert(THREADS / 32 <= 16, "32 words are of all warps");
    __device__ __forceinline__ int blocks() const { return int((args.depth + BLOCK_K - 1) / BLOCK_K); }
};

template <class Program> struct MadeLoader : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::T;
    using Of = Factors<Program>;
    using Tile::args, Tile::TOKENS, Tile::BLOCK_K, Tile::THREADS, Tile::SIDES, Tile::WORDS, Tile::PACKS, Tile::STAGES,
        Tile::FULL;

    PackStream<TOKENS, BLOCK_K / 8, THREADS> lefts;
    PackStream<SIDES, PACKS, THREADS> packs;
    CodeWords<Program> codes;
    PairMaker<Program, PACKS> maker;
    int warp;

    __device__ __forceinline__ MadeLoader(const Tile& tile, const CodeWords<Program>& codes, int thread)
        : Tile(tile),
          lefts((args.*Of::LEFT_ARRAY).data + tile.token * stride()[1], stride()[1], args.rows - tile.token, args.depth,
                thread),
          packs(codes.data + tile.side * codes.side_stride, codes.side_stride, args.columns - tile.side, codes.count,
                thread),
          codes(codes),
          maker(args, tile.side + thread / 32 * SLAB),
          warp(thread / 32) {}
    __device__ __forceinline__ const long long* stride() const { return args.stride[Of::Left::OPERAND]; }

    __device__ __forceinline__ auto place_of_left(int slot) const {
        const auto left = this->left(slot);
        return [=](int row, int pack, int beside) -> void* {
            return left.chunk(beside & -8, 0, beside % 8 + row + pack / 8 * TOKENS, pack % 8);
        };
    }
    __device__ __forceinline__ auto place_of_words(int slot) const {
        return [this, slot](int row, int pack, int beside) -> void* {
            constexpr bool SAME = THREADS / PACKS % 8 == 0;  // rows have their packs in the same order
            return SAME ? this->words(slot, row, pack, beside) : this->words(slot, row + beside, pack);
        };
    }
    __device__ __forceinline__ void load(int block, int slot) {
        if constexpr (STRIDED) return load_each(block, slot);
        lefts.copy(place_of_left(slot));
        packs.copy(place_of_words(slot));
    }
    // Of arrays of any strides.
    __device__ __forceinline__ void load_each(int block, int slot) const {
        const long long first = (long long)block * BLOCK_K;
        const auto left = this->left(slot);
        const T* const from = (args.*Of::LEFT_ARRAY).data + this->token * stride()[1] + first * stride()[2];
#pragma unroll 1
        for (int i = threadIdx.x % THREADS; i < TOKENS * BLOCK_K; i += THREADS) {
            const int row = i / BLOCK_K, place = i % BLOCK_K;
            const bool inside = row < args.rows - this->token && place < args.depth - first;
            *left.at(row + place / PANEL * TOKENS, place % PANEL) =
                inside ? from[row * stride()[1] + place * stride()[2]] : T{};
        }
#pragma unroll 1
        for (int i = threadIdx.x % THREADS; i < SIDES * WORDS; i += THREADS) {
            const int row = i / WORDS, word = i % WORDS;
            const long long side = this->side + row, place = first / 8 + word;
            const bool inside = side < args.columns && place < codes.count;
            this->words(slot, row, word / 4)[word % 4] =
                inside ? codes.data[side * codes.side_stride + place * codes.stride] : 0;
        }
    }

    // Loads a block, and stores pairs of the one before, which have arrived by then.
    __device__ __forceinline__ void next(int block, int blocks, int& slot) {
        const int before = slot;
        slot = Tile::after(slot);
        if (block > 0 && block <= blocks)
            maker.store(this->pairs(before, warp), this->fast(before, warp), this->some(before, warp));
        if (block < blocks) {
            load(block, slot);
            maker.load(args, block);
        }
        cp_async_commit_group();
    }
    // Fills the ring: a barrier says that a buffer is full, and that the one before it is free.
    __device__ __forceinline__ void run() {
        const int blocks = this->blocks();
        for (int slot = 0; !STRIDED && slot < STAGES; ++slot) {
            lefts.clear(place_of_left(slot));
            packs.clear(place_of_words(slot));
        }
        int slot = STAGES - 1;  // of the block before the next
#pragma unroll 1
        for (int block = 0; block < STAGES - 1; ++block) next(block, blocks, slot);
#pragma unroll 1
        for (int block = 0; block < blocks; ++block) {
            cp_async_wait_group<STAGES - 2>();
            bar_sync(FULL, 2 * THREADS);
            next(block + STAGES - 1, blocks, slot);
        }
    }
};

template <class Program> struct MadeMultiplier : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::Left;
    using typename Tile::Multiply;
    using Pairs = typename Tile::Pairs;
    using Tile::args, Tile::WIDE, Tile::PACKS;
    int warp;
    long long first;  // row of the factor
    typename Multiply::Sum sum[2 * WIDE];

    __device__ __forceinline__ explicit MadeMultiplier(const Tile& tile)
        : Tile(tile), warp(int(threadIdx.x) / 32), first(tile.side + warp * SLAB) {
#pragma unroll
        for (int j = 0; j < 2 * WIDE; ++j) sum[j] = {};
    }

    // The part of an operand that a lane makes of its words in 16 of the depth, with an offset or zero point and a
    // scale for each of two rows.
    template <typename V>
    __device__ __forceinline__ typename Multiply::Left make(const Pack<unsigned, 4> (&words)[2],
                                                            const Pack<V, 2> (&of)[2], int half,
                                                            const Pairs& pairs) const {
        typename Multiply::Left made;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            made.word[i] = pairs.of_codes(words[i % 2].lane[2 * half + i / 2], of[i % 2].lane[0], of[i % 2].lane[1]);
        return made;
    }
    // The same by the program, zeros beyond the depth.
    __device__ __forceinline__ typename Multiply::Left compute(long long depth) const {
        typename Multiply::Left of = {};
        const long long upper = min(first + MmaLane::row(0), args.columns - 1);
        const long long lower = min(first + MmaLane::row(2), args.columns - 1);
#pragma unroll 1
        for (int i = 0; i < 8; ++i) {
            const long long k = depth + MmaLane::col(i % 2) + i / 4 * 8;
            if (k >= args.depth) continue;
            const unsigned bits = made_element<Program>(args, i / 2 % 2 ? lower : upper, k).bits;
#pragma unroll
            for (int w = 0; w < 4; ++w) of.word[w] |= i / 2 == w ? bits << 16 * (i % 2) : 0;
        }
        return of;
    }

    // Adds 16 of the depth, of which a block has those from k on.
    template <class Make> __device__ __forceinline__ void add(const Left& left, int k, const Make& make) {
        typename Multiply::Right right[WIDE];
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
            right[j] = Multiply::right_transposed(left, k % PANEL, k / PANEL * Tile::TOKENS + 16 * j);
        const typename Multiply::Left made = make();
#pragma unroll
        for (int j = 0; j < WIDE; ++j) Multiply::multiply(sum + 2 * j, made, right[j]);
    }
    template <bool EXACT>
    __device__ __forceinline__ void add_run(const Left& left, int slot, int pack, const Pairs& pairs) {
        const unsigned* const from = this->words(slot, warp * SLAB + MmaLane::row(0), pack);
        const unsigned* const of_run = this->pairs(slot, warp) + (pack * SLAB + MmaLane::row(0)) * 2;
        Pack<unsigned, 4> words[2];
        Pack<unsigned, 2> of[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) words[i].load(from + 8 * i * Tile::WORDS), of[i].load(of_run + 16 * i);
        Pack<float, 2> floats[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (EXACT) of[i].lane[0] = Pairs::offset(of[i].lane[0]);
            else floats[i] = {Pairs::first_of(of[i].lane[0]), Pairs::first_of(of[i].lane[1])};
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            add(left, pack * RUN + 16 * half, [&] {
                if constexpr (EXACT) return make(words, of, half, pairs);
                else return make(words, floats, half, pairs);
            });
    }
    // A block in which some runs have no exact pairs, or of which some lies beyond the depth.
    __device__ __forceinline__ void add_each(const Left& left, int block, int slot, unsigned fast, const Pairs& pairs) {
        const long long begin = (long long)block * Tile::BLOCK_K;
        const unsigned some = *this->some(slot, warp);
#pragma unroll 1
        for (int pack = 0; pack < PACKS && begin + pack * RUN < args.depth; ++pack) {
            if (fast >> pack & 1) {
                add_run<true>(left, slot, pack, pairs);
            } else if (some >> pack & 1) {
                add_run<false>(left, slot, pack, pairs);
            } else {
#pragma unroll 1
                for (int k = pack * RUN; k < pack * RUN + RUN; k += 16)
                    add(left, k, [&] { return compute(begin + k); });
            }
        }
    }

    // All terms of the sums, in order.
    __device__ __forceinline__ void run() {
        const int blocks = this->blocks();
        const Pairs pairs(MmaLane::lane() % 4);
        int slot = 0;
#pragma unroll 1
        for (int block = 0; block < blocks; ++block, slot = Tile::after(slot)) {
            bar_sync(Tile::FULL, 2 * Tile::THREADS);
            const Left left = this->left(slot);
            const unsigned fast = *this->fast(slot, warp);
            if (fast == PairMaker<Program, PACKS>::ALL_PACKS) {
#pragma unroll
                for (int pack = 0; pack < PACKS; ++pack) add_run<true>(left, slot, pack, pairs);
            } else {
                add_each(left, block, slot, fast, pairs);
            }
        }
    }

    __device__ __forceinline__ void store() const {
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            const long long row = this->token + 16 * j + MmaLane::col(0), column = first + MmaLane::row(0);
            float part[1][1][8];
#pragma unroll
            for (int v = 0; v < 8; ++v) part[0][0][v] = sum[2 * j + v / 4].value[v % 4];
            const FragmentCells<true, false> cells = {0, row, column, args.rows, args.columns};
            finish<Program, false>(part, cells, args);
        }
    }
};

template <class Program> __device__ constexpr int blocks_per_sm() { return 1; }

template <class Program> __device__ __forceinline__ void walk(const typename Program::Args& args) {
    using Tile = MadeTile<Program>;
    DYN_SHARED(unsigned char, shared);
    static_assert(reserves(Tile::STAGES * Tile::STAGE), "the launch reserves all buffers");
    const Tile tile = {args, shared, (long long)blockIdx.y * Tile::TOKENS, (long long)blockIdx.x * Tile::SIDES};
    if (threadIdx.x >= Tile::THREADS) {
        CodeWords<Program> codes;
        Program::Cells::places(codes, args, args);
        MadeLoader<Program>(tile, codes, int(threadIdx.x) - Tile::THREADS).run();
    } else {
        MadeMultiplier<Program> multiplier(tile);
        multiplier.run();
        multiplier.store();
    }
}

}  // namespace baracuda
