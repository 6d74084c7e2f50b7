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

constexpr int RUN = 32;  // of the depth: words of a pack of 16 bytes
constexpr int SLAB = 16;  // rows of an instruction

// A cell of the factor, for the program that makes it.
template <class Args, class P> struct MadeLane : PackLane<P> {
    const Args& args;
    long long side, depth;
    __device__ i64 index(int operand) const {
        return side * args.stride[operand][1] + depth * args.stride[operand][2];
    }
};

// How cells read arrays.
template <class Args, class P> struct MadeRead {
    const MadeLane<Args, P>& lane;
    __device__ long long offset(int operand) const { return lane.index(operand); }
    template <typename T> __device__ void operator()(Pack<T, 1> (&pack)[1], const T* data, int operand) const {
        pack[0].lane[0] = data[offset(operand)];
    }
    template <typename V, class A, class Axes, typename Outside, class Still, class F>
    __device__ void at(Pack<V, 1> (&pack)[1], const A& array, const Axes& axes, Outside outside, Still,
                       const F& place_of) const {
        PlaceOf<Axes> place;
        place_of(place.of, lane);
        pack[0].lane[0] = V(outside);
        if (axes.contain(place.of))
            pack[0].lane[0] = V(array.data[offset(A::OPERAND) + axes.template offset<i64>(place.of)]);
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
    template <class V, class Read, class A, class Axes, typename Outside, class Still, class F>
    __device__ void place(const Read&, V, const A&, const Axes& axes, Outside, Still, const F& place_of) {
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

// Loads what is at these places for the lane's two rows.
template <class Program> struct RunValues {
    using T = typename Program::T;
    long long row[2];
    int zero_place, scale_place;
    T zero[2], scale[2];

    template <class V, class Read, class A, class Axes, typename Outside, class Still, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, Still, const F&) {
        if constexpr (SameType<V, typename Program::Zero>::VALUE) load(zero, args, array, axes, zero_place);
        if constexpr (SameType<V, typename Program::Scale>::VALUE) load(scale, args, array, axes, scale_place);
    }
    template <class Args, class A, class Axes>
    __device__ void load(T (&to)[2], const Args& args, const A& array, const Axes& axes, int place) const {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            to[i] = read_line(array.data + row[i] * args.stride[A::OPERAND][1] + place * axes.stride[0]);
    }
};

// Runs that share a zero point and a scale, one stretch after the other; what the next one has is loaded ahead.
template <class Program> struct Stretches {
    using Args = typename Program::Args;
    using T = typename Program::T;
    using Pairs = MadePair<T>;
    static constexpr int AHEAD = 32, NONE = RunPlaces<Program>::NONE;

    RunValues<Program> next;
    int base = -AHEAD, loaded = NONE;  // the run whose places lane 0 has, and the one that `next` is of
    int zero_place, scale_place;       // of run base + lane
    int end = 0;
    bool fast;                          // whether all lanes make pairs of it
    unsigned zero[2], scale[2];         // pairs

    __device__ __forceinline__ void find(const Args& args, int run) {
        const long long first = (long long)(run + lane_index()) * RUN;
        RunPlaces<Program> places = {first, first + RUN - 1};
        if (first + RUN <= args.depth) Program::Cells::places(places, args, args);
        base = run;
        zero_place = places.zero, scale_place = places.scale;
    }
    __device__ __forceinline__ bool load(const Args& args, int run) {
        next.zero_place = __shfl_sync(ALL_LANES, zero_place, run - base);
        next.scale_place = __shfl_sync(ALL_LANES, scale_place, run - base);
        loaded = run;
        if (next.zero_place == NONE || next.scale_place == NONE) return false;
        Program::Cells::places(next, args, args);
        return true;
    }
    // All lanes call it at a run that is not before `end`.
    __device__ __forceinline__ void begin(const Args& args, int run) {
        const bool ahead = loaded == run;
        if (run - base >= AHEAD / 2) find(args, run);
        if (!ahead) load(args, run);
        const int of_zero = __shfl_sync(ALL_LANES, zero_place, run - base);
        const int of_scale = __shfl_sync(ALL_LANES, scale_place, run - base);
        fast = of_zero != NONE && of_scale != NONE;
        if (fast) {
            bool exact = true;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                exact = exact && Pairs::is_exact(next.zero[i]);
                zero[i] = Pairs::of_zero(next.zero[i]);
                scale[i] = Pairs::of(next.scale[i]);
            }
            fast = __all_sync(ALL_LANES, exact);
        }
        const unsigned other = __ballot_sync(ALL_LANES, zero_place != of_zero || scale_place != of_scale);
        const unsigned later = other & (~1u << (run - base));
        const int change = later ? base + 31 - __clz(int(later & -later)) : base + AHEAD;
        end = of_zero != NONE && of_scale != NONE ? change : run + 1;
        if (end < base + AHEAD) load(args, end);
    }
    __device__ __forceinline__ static int lane_index() { return int(threadIdx.x) % 32; }
};

// Where the words of codes are.
template <class Program> struct CodeWords {
    const unsigned* data;
    long long side_stride, stride, count;

    template <class V, class Read, class A, class Axes, typename Outside, class Still, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, Still, const F&) {
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
        : step(AT_ONCE * stride * int(sizeof(T))), live(0), row(thread / PACKS), pack(thread % PACKS) {
        next = reinterpret_cast<const char*>(data + row * stride) + pack * 16;
        left = count * int(sizeof(T)) - pack * 16;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) live |= unsigned(row + i * AT_ONCE < rows) << i;
    }
    // place(row, pack, beside) is where a pack goes, `beside` rows from one that is the same in every call.
    template <class Place> __device__ __forceinline__ void copy(const Place& place) {
        const int bytes = int(max(min(left, 16ll), 0ll));
        const char* from = next;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            cp_async_cg(place(row, pack, i * AT_ONCE), from, live >> i & 1 ? bytes : 0);
            from += step;
        }
        next += PACKS * 16;
        left -= PACKS * 16;
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
    static constexpr int LEFT_BYTES = TOKENS * BLOCK_K * int(sizeof(T)), STAGE = LEFT_BYTES + SIDES * WORDS * 4;
    static constexpr unsigned FULL = 1;  // a barrier
    using Left = SharedTile<T, TOKENS, BLOCK_K>;
    static_assert(sizeof(T) == 2 && TOKENS % 16 == 0 && SPAN == PACKS, "whole instructions and packs");

    const Args& args;
    unsigned char* shared;
    long long token, side;  // the first of the block

    __device__ __forceinline__ Left left(int block) const {
        return {reinterpret_cast<T*>(shared + block % STAGES * STAGE)};
    }
    // Where a pack of words is, `beside` rows (a multiple of 8, if any) from one: those of 8 rows lie in different banks.
    __device__ __forceinline__ unsigned* words(int block, int row, int pack, int beside = 0) const {
        unsigned* const of_block = reinterpret_cast<unsigned*>(shared + block % STAGES * STAGE + LEFT_BYTES);
        return of_block + row * WORDS + (pack ^ (row & (SPAN - 1) & 7)) * 4 + beside * WORDS;
    }
    __device__ __forceinline__ int blocks() const { return int((args.depth + BLOCK_K - 1) / BLOCK_K); }
};

template <class Program> struct MadeLoader : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::T;
    using Of = Factors<Program>;
    using Tile::args, Tile::TOKENS, Tile::BLOCK_K, Tile::THREADS, Tile::SIDES, Tile::WORDS, Tile::PACKS, Tile::STAGES, Tile::FULL;

    PackStream<TOKENS, BLOCK_K / 8, THREADS> lefts;
    PackStream<SIDES, PACKS, THREADS> packs;
    CodeWords<Program> codes;

    __device__ __forceinline__ MadeLoader(const Tile& tile, const CodeWords<Program>& codes, int thread)
        : Tile(tile), lefts((args.*Of::LEFT_ARRAY).data + tile.token * stride()[1], stride()[1],
                            args.rows - tile.token, args.depth, thread),
          packs(codes.data + tile.side * codes.side_stride, codes.side_stride, args.columns - tile.side, codes.count,
                thread),
          codes(codes) {}
    __device__ __forceinline__ const long long* stride() const { return args.stride[Of::Left::OPERAND]; }

    __device__ __forceinline__ void load(int block) {
        if constexpr (STRIDED) return load_each(block);
        const auto left = this->left(block);
        lefts.copy([&](int row, int pack, int beside) {
            return left.chunk(beside & -8, 0, beside % 8 + row, pack);
        });
        packs.copy([&](int row, int pack, int beside) {
            return PACKS <= THREADS / 8 ? this->words(block, row, pack, beside) : this->words(block, row + beside, pack);
        });
    }
    // Of arrays of any strides.
    __device__ __forceinline__ void load_each(int block) const {
        const long long first = (long long)block * BLOCK_K;
        const auto left = this->left(block);
        const T* const from = (args.*Of::LEFT_ARRAY).data + this->token * stride()[1] + first * stride()[2];
#pragma unroll 1
        for (int i = threadIdx.x % THREADS; i < TOKENS * BLOCK_K; i += THREADS) {
            const int row = i / BLOCK_K, place = i % BLOCK_K;
            const bool inside = row < args.rows - this->token && place < args.depth - first;
            *left.at(row, place) = inside ? from[row * stride()[1] + place * stride()[2]] : T{};
        }
#pragma unroll 1
        for (int i = threadIdx.x % THREADS; i < SIDES * WORDS; i += THREADS) {
            const int row = i / WORDS, word = i % WORDS;
            const long long side = this->side + row, place = first / 8 + word;
            const bool inside = side < args.columns && place < codes.count;
            this->words(block, row, word / 4)[word % 4] =
                inside ? codes.data[side * codes.side_stride + place * codes.stride] : 0;
        }
    }

    // Fills the ring: a barrier says that a buffer is full, and that the one before it is free.
    __device__ __forceinline__ void run() {
        const int blocks = this->blocks();
        for (int block = 0; block < STAGES - 1; ++block) {
            if (block < blocks) load(block);
            cp_async_commit_group();
        }
#pragma unroll 1
        for (int block = 0; block < blocks; ++block) {
            cp_async_wait_group<STAGES - 2>();
            bar_sync(FULL, 2 * THREADS);
            if (block + STAGES - 1 < blocks) load(block + STAGES - 1);
            cp_async_commit_group();
        }
    }
};

template <class Program> struct MadeMultiplier : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::Left;
    using typename Tile::Multiply;
    using Pairs = typename Tile::Pairs;
    using Tile::args, Tile::WIDE, Tile::PACKS;
    struct Words {
        Pack<unsigned, 4> of[2];  // of rows g and g + 8
    };

    Stretches<Program> stretches;
    typename Multiply::Sum sum[2 * WIDE];

    __device__ __forceinline__ explicit MadeMultiplier(const Tile& tile) : Tile(tile) {
        const long long first = this->first_side();
#pragma unroll
        for (int i = 0; i < 2; ++i) stretches.next.row[i] = min(first + MmaLane::row(2 * i), args.columns - 1);
#pragma unroll
        for (int j = 0; j < 2 * WIDE; ++j) sum[j] = {};
    }
    __device__ __forceinline__ long long first_side() const { return this->side + int(threadIdx.x) / 32 * SLAB; }

    __device__ __forceinline__ Words load_words(int block, int pack) const {
        const unsigned* const from = this->words(block, int(threadIdx.x) / 32 * SLAB + MmaLane::row(0), pack);
        Words words;
        words.of[0].load(from);
        words.of[1].load(from + 8 * Tile::WORDS);
        return words;
    }
    // The part of an operand that a lane makes of its words in 16 of the depth.
    __device__ __forceinline__ typename Multiply::Left make(const Words& words, int half, const Pairs& pairs) const {
        typename Multiply::Left of;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            of.word[i] = pairs.of_codes(words.of[i % 2].lane[2 * half + i / 2], stretches.zero[i % 2],
                                        stretches.scale[i % 2]);
        return of;
    }
    // The same by the program, zeros beyond the depth.
    __device__ __forceinline__ typename Multiply::Left compute(long long depth) const {
        typename Multiply::Left of = {};
        const long long upper = stretches.next.row[0], lower = stretches.next.row[1];
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
        for (int j = 0; j < WIDE; ++j) right[j] = Multiply::right_transposed(left, k, 16 * j);
        const typename Multiply::Left made = make();
#pragma unroll
        for (int j = 0; j < WIDE; ++j) Multiply::multiply(sum + 2 * j, made, right[j]);
    }
    // Packs of one stretch.
    __device__ __forceinline__ void add_fast(const Left& left, int block, int pack, int end, const Pairs& pairs) {
        Words next = load_words(block, pack);
#pragma unroll 2
        for (; pack < end; ++pack) {
            const Words words = next;
            next = load_words(block, pack + 1 & PACKS - 1);
#pragma unroll
            for (int half = 0; half < 2; ++half)
                add(left, (pack & PACKS - 1) * RUN + 16 * half, [&] { return make(words, half, pairs); });
        }
    }
    __device__ __forceinline__ void add_slowly(const Left& left, int block, int pack, int end) {
        const long long first = (long long)block * Tile::BLOCK_K;
#pragma unroll 1
        for (int k = pack * RUN; k < end * RUN; k += 16) add(left, k, [&] { return compute(first + k); });
    }

    // All terms of the sums, in order.
    __device__ __forceinline__ void run() {
        const int blocks = this->blocks();
        const int runs = int((args.depth + RUN - 1) / RUN);
        const Pairs pairs(MmaLane::lane() % 4);
#pragma unroll 1
        for (int block = 0; block < blocks; ++block) {
            bar_sync(Tile::FULL, 2 * Tile::THREADS);
            const Left left = this->left(block);
            const int first = block * PACKS, end = min(PACKS, runs - first);
#pragma unroll 1
            for (int pack = 0; pack < end;) {
                if (first + pack >= stretches.end) stretches.begin(args, first + pack);
                const int stop = min(end, stretches.end - first);
                if (stretches.fast) add_fast(left, block, pack, stop, pairs);
                else add_slowly(left, block, pack, stop);
                pack = stop;
            }
        }
    }
    __device__ __forceinline__ void store() const {
        const long long first = first_side();
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            const long long row = this->token + 16 * j + MmaLane::col(0), column = first + MmaLane::row(0);
            float part[8];
#pragma unroll
            for (int v = 0; v < 8; ++v) part[v] = sum[2 * j + v / 4].value[v % 4];
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
