// Loads what products with a right factor of their own making multiply, and makes what each run of a row has.
#pragma once

#include <baracuda/matrix/made_tile.cuh>

namespace baracuda {

// Makes a record of what each run of a block has for each of 16 rows, by a warp: half of the lanes take the first runs,
// each lane one row. Of the blocks it has those of a group of loaders.
template <class Program> struct RunMaker {
    using Tile = MadeTile<Program>;
    using Args = typename Program::Args;
    using Maker = MakerOf<Program>;
    using Rows = RunRows<Program>;
    static constexpr int PACKS = Tile::PACKS, COUNT = PACKS / 2, AT_ONCE = 32, NONE = RunPlaces<Program>::NONE;  // runs
    static_assert(PACKS % 2 == 0 && AT_ONCE % PACKS == 0, "lanes know the places of whole blocks");

    Rows rows;
    int group, row, first;          // of the lane's rows and of its runs in a block
    int first_place, second_place;  // of one run of the next AT_ONCE
    unsigned changes, exist;  // of these runs, those that have others than the one before, and those that have some
    typename Rows::First of_first[COUNT];
    typename Rows::Second of_second[COUNT];  // on their way
    unsigned other, known;                   // of a block
    Maker maker;

    __device__ __forceinline__ RunMaker(const Args& args, long long side, int group)
        : group(group), row(lane() % SLAB), first(lane() / SLAB * COUNT), maker(args, place(args, side)) {
        rows = {};
        rows.side = place(args, side);
        Program::Cells::places(rows, args, args);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) of_first[i] = {}, of_second[i] = {};
    }
    __device__ __forceinline__ static int lane() { return int(threadIdx.x) % 32; }
    __device__ __forceinline__ static long long place(const Args& args, long long side) {
        return min(side + lane() % SLAB, args.columns - 1);
    }

    // The places of the next runs, one for each lane.
    __device__ __forceinline__ void seek(const Args& args, int turn) {
        const int block = (turn + lane() / PACKS) * Tile::LOADERS + group;
        const long long begin = ((long long)block * PACKS + lane() % PACKS) * RUN;
        RunPlaces<Program> places = {begin, begin + RUN};
        if (begin + RUN <= args.depth) Program::Cells::places(places, args, args);
        else places.first = places.second = NONE;
        first_place = places.first, second_place = places.second;
        const int first_before = __shfl_up_sync(ALL_LANES, first_place, 1);
        const int second_before = __shfl_up_sync(ALL_LANES, second_place, 1);
        changes = __ballot_sync(ALL_LANES, first_place != first_before || second_place != second_before);
        exist = __ballot_sync(ALL_LANES, first_place != NONE && second_place != NONE);
    }
    __device__ __forceinline__ void load(const Args& args, int turn) {
        const int begin = turn * PACKS % AT_ONCE;
        if (begin == 0) seek(args, turn);
        other = (changes >> begin | 1) & Tile::ALL_PACKS;
        known = exist >> begin & Tile::ALL_PACKS;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (!changed(i)) continue;
            const int at_first = __shfl_sync(ALL_LANES, first_place, begin + first + i);
            const int at_second = __shfl_sync(ALL_LANES, second_place, begin + first + i);
            if (!(known >> (first + i) & 1)) continue;
            if constexpr (RunPlaces<Program>::HAS_FIRST)
                of_first[i] = read_line(rows.first + at_first * rows.first_stride);
            if constexpr (RunPlaces<Program>::HAS_SECOND)
                of_second[i] = read_line(rows.second + at_second * rows.second_stride);
        }
    }
    // Whether run i of either half is another one than that before.
    __device__ __forceinline__ bool changed(int i) const { return i == 0 || ((other | other >> COUNT) >> i & 1); }

    // Stores what was loaded.
    __device__ __forceinline__ void store(const Tile& tile, int slot, int warp) {
        typename Maker::Record record = {};
        bool exact = false;
        unsigned own = 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (changed(i)) exact = maker.make(record, of_first[i], of_second[i]) & (known >> (first + i) & 1);
            own |= unsigned(exact) << (first + i);
            record.store(tile.records(slot, warp, first + i, row), row);
        }
        const unsigned fast = in_all_rows(own);
        if (lane() == 0) *tile.fast(slot, warp) = fast, *tile.some(slot, warp) = known, *tile.other(slot, warp) = other;
    }
    // Of all runs, those whose bit is set in each lane that has them.
    __device__ __forceinline__ unsigned in_all_rows(unsigned own) const {
        unsigned all = Tile::ALL_PACKS;
        if (!__any_sync(ALL_LANES, own != ((1u << COUNT) - 1) << first)) return all;
#pragma unroll 1
        for (int i = 0; i < PACKS; ++i)
            if (!__all_sync(ALL_LANES, i / COUNT * COUNT != first || (own >> i & 1))) all &= ~(1u << i);
        return all;
    }
};

// Copies ROWS rows of PACKS packs of 16 bytes, of every EVERY-th block, by THREADS threads; zeros
// for what does not exist.
template <int ROWS, int PACKS, int THREADS, int EVERY> struct PackStream {
    static constexpr int AT_ONCE = THREADS / PACKS, COUNT = ROWS / AT_ONCE;  // rows
    static_assert(THREADS % PACKS == 0 && ROWS % AT_ONCE == 0, "threads share whole rows");

    const char* next;
    long long step, left;  // bytes to the thread's next row, and what is left of a row
    unsigned live;         // the thread's rows that exist
    int row, pack;

    template <typename T>
    __device__ __forceinline__ PackStream(const T* data, long long stride, long long rows, long long count, int thread,
                                          int block)
        : step(AT_ONCE * stride * int(sizeof(T))), row(thread / PACKS), pack(thread % PACKS) {
        const int first = block * PACKS + pack;
        next = reinterpret_cast<const char*>(data + row * stride) + first * 16;
        left = count * int(sizeof(T)) - first * 16;
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
        next += EVERY * PACKS * 16;
        left -= EVERY * PACKS * 16;
    }
    // Rows that do not exist, of which nothing is copied.
    template <class Place> __device__ __forceinline__ void clear(const Place& place) const {
#pragma unroll 1
        for (int i = 0; i < COUNT; ++i)
            if (!(live >> i & 1)) *static_cast<uint4*>(place(row, pack, i * AT_ONCE)) = uint4{0, 0, 0, 0};
    }
};

// A group of warps that loads every LOADERS-th block.
template <class Program> struct MadeLoader : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::T;
    using Of = Factors<Program>;
    using Tile::args, Tile::TOKENS, Tile::BLOCK_K, Tile::THREADS, Tile::SIDES, Tile::WORDS, Tile::PACKS, Tile::STAGES,
        Tile::LOADERS;
    // Its own buffers, and how many blocks it waits for: those of other groups are multiplied while it goes on.
    static constexpr int OWN = STAGES / LOADERS, AHEAD = LOADERS == 1 ? OWN - 2 : OWN - 1;
    static_assert(STAGES % LOADERS == 0 && AHEAD > 0, "blocks are on their way");

    PackStream<TOKENS, BLOCK_K / 8, THREADS, LOADERS> lefts;
    PackStream<SIDES, PACKS, THREADS, LOADERS> packs;
    CodeArray<Program> codes;
    RunMaker<Program> maker;
    int warp, group;

    __device__ __forceinline__ MadeLoader(const Tile& tile, const CodeArray<Program>& codes, int thread, int group)
        : Tile(tile),
          lefts((args.*Of::LEFT_ARRAY).data + tile.token * stride()[1], stride()[1], args.rows - tile.token, args.depth,
                thread, group),
          packs(codes.data + tile.side * codes.side_stride, codes.side_stride, args.columns - tile.side, codes.count,
                thread, group),
          codes(codes),
          maker(args, tile.side + thread / 32 * SLAB, group),
          warp(thread / 32),
          group(group) {}
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
            const long long side = this->side + row;
            this->words(slot, row, word / 4)[word % 4] = side < args.columns ? codes.word(side, first / 8 + word) : 0;
        }
    }

    __device__ __forceinline__ int after(int slot) const { return slot + LOADERS < STAGES ? slot + LOADERS : group; }
    // Fills its buffers in turn. Records of a block are stored a turn later, when what they are made of has arrived.
    __device__ __forceinline__ void run() {
        const int blocks = max((this->blocks() - group + LOADERS - 1) / LOADERS, 0);  // its own
        for (int slot = group; !STRIDED && slot < STAGES; slot += LOADERS) {
            lefts.clear(place_of_left(slot));
            packs.clear(place_of_words(slot));
        }
        int slot = group, before = group, ready = group;
#pragma unroll 1
        for (int turn = 0; turn < blocks + AHEAD; ++turn, before = slot, slot = after(slot)) {
            if (turn > 0 && turn <= blocks) maker.store(*this, before, warp);
            if (turn < blocks) {
                if (turn >= OWN) bar_sync(Tile::free(slot), 2 * THREADS);
                load(turn * LOADERS + group, slot);
                maker.load(args, turn);
            }
            cp_async_commit_group();
            if (turn < AHEAD) continue;
            cp_async_wait_group<AHEAD>();
            bar_arrive(Tile::full(ready), 2 * THREADS);
            ready = after(ready);
        }
    }
};

}  // namespace baracuda
