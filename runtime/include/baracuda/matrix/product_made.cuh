// Products with few rows, whose right factor is made while they run, of codes of four bits (made_cells.cuh): by the
// arithmetic of pairs where it is PAIRED (made_pair.cuh), else by tables of its values (made_table.cuh).
//
// block -> TOKENS rows of the result and 16 columns for each warp that multiplies, which are the rows of its
// instructions warp  -> all of the depth, in order: sums are those of product_mma.cuh
//
// Left factors and words go through shared memory (made_tile.cuh); other warps load them (made_loader.cuh). In each run
// of 32 of the depth, a lane makes its part of two instructions' operands of a word's byte. Where groups change within
// a run, or zero points are no small whole numbers, and at the end of the depth, the program itself is computed,
// element by element.
#pragma once

#include <baracuda/matrix/made_loader.cuh>

namespace baracuda {

template <class Program> struct MadeMultiplier : MadeTile<Program> {
    using Tile = MadeTile<Program>;
    using typename Tile::Left;
    using typename Tile::Multiply;
    using Pairs = MadePair<typename Program::T>;
    using Table = CodeTable<Program::HIGH_FIRST>;
    using Tile::args, Tile::WIDE, Tile::PACKS, Tile::STAGES;
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
                                                            const Pack<V, 2> (&of)[2], int half) const {
        const Pairs pairs(MmaLane::lane() % 4);
        typename Multiply::Left made;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            made.word[i] = pairs.of_codes(words[i % 2].lane[2 * half + i / 2], of[i % 2].lane[0], of[i % 2].lane[1]);
        return made;
    }
    // The same with a table for each of two rows.
    __device__ __forceinline__ typename Multiply::Left make(const Pack<unsigned, 4> (&words)[2],
                                                            const Table (&tables)[2], int half) const {
        const int byte = byte_of<Program>(MmaLane::lane() % 4);
        typename Multiply::Left made;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const unsigned* const two = words[i].lane + 2 * half;
            tables[i].pairs(__byte_perm(two[0], two[1], byte * 0x11 + 0x40), made.word[i], made.word[i + 2]);
        }
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
    __device__ __forceinline__ void load(Pack<unsigned, 4> (&words)[2], int slot, int pack) const {
        const unsigned* const from = this->words(slot, warp * SLAB + MmaLane::row(0), pack);
#pragma unroll
        for (int i = 0; i < 2; ++i) words[i].load(from + 8 * i * Tile::WORDS);
    }
    // Adds a run with pairs of zero points and scales.
    template <bool EXACT> __device__ __forceinline__ void add_pairs(const Left& left, int slot, int pack) {
        const unsigned* const of_run = this->records(slot, warp, pack, MmaLane::row(0));
        Pack<unsigned, 4> words[2];
        Pack<unsigned, 2> of[2];
        load(words, slot, pack);
#pragma unroll
        for (int i = 0; i < 2; ++i) of[i].load(of_run + 8 * i * Tile::RECORD);
        Pack<float, 2> floats[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (EXACT) of[i].lane[0] = Pairs::offset(of[i].lane[0]);
            else floats[i] = {Pairs::first_of(of[i].lane[0]), Pairs::first_of(of[i].lane[1])};
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            add(left, pack * RUN + 16 * half, [&] {
                if constexpr (EXACT) return make(words, of, half);
                else return make(words, floats, half);
            });
    }
    // Adds a run with tables, which are loaded where they are others than those of the run before.
    __device__ __forceinline__ void add_of_tables(const Left& left, int slot, int pack, Table (&tables)[2],
                                                  bool is_other) {
        Pack<unsigned, 4> words[2];
        load(words, slot, pack);
        if (is_other) {
            const int row = MmaLane::row(0);
#pragma unroll
            for (int i = 0; i < 2; ++i) tables[i].load(this->records(slot, warp, pack, row + 8 * i), row);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
            add(left, pack * RUN + 16 * half, [&] { return make(words, tables, half); });
    }
    // A block of which all runs are exact.
    __device__ __forceinline__ void add_fast(const Left& left, int slot, Table (&tables)[2]) {
        const unsigned other = *this->other(slot, warp);
#pragma unroll
        for (int pack = 0; pack < PACKS; ++pack) {
            if constexpr (Program::PAIRED) add_pairs<true>(left, slot, pack);
            else add_of_tables(left, slot, pack, tables, other >> pack & 1);
        }
    }
    // A block in which some runs have no exact records, or of which some lies beyond the depth.
    __device__ __forceinline__ void add_each(const Left& left, int block, int slot, unsigned fast, Table (&tables)[2]) {
        const long long begin = (long long)block * Tile::BLOCK_K;
        const unsigned some = *this->some(slot, warp);
#pragma unroll 1
        for (int pack = 0; pack < PACKS && begin + pack * RUN < args.depth; ++pack) {
            if (some >> pack & 1) {
                if constexpr (!Program::PAIRED) add_of_tables(left, slot, pack, tables, true);
                else if (fast >> pack & 1) add_pairs<true>(left, slot, pack);
                else add_pairs<false>(left, slot, pack);
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
        Table tables[2] = {};
        int slot = 0;
#pragma unroll 1
        for (int block = 0; block < blocks; ++block, slot = slot + 1 == STAGES ? 0 : slot + 1) {
            bar_sync(Tile::full(slot), 2 * Tile::THREADS);
            const Left left = this->left(slot);
            const unsigned fast = *this->fast(slot, warp);
            if (fast == Tile::ALL_PACKS) add_fast(left, slot, tables);
            else add_each(left, block, slot, fast, tables);
            if (block + STAGES < blocks) bar_arrive(Tile::free(slot), 2 * Tile::THREADS);
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
        CodeArray<Program> codes;
        Program::Cells::places(codes, args, args);
        MadeLoader<Program>(tile, codes, int(threadIdx.x) % Tile::THREADS, int(threadIdx.x) / Tile::THREADS - 1).run();
    } else {
        MadeMultiplier<Program> multiplier(tile);
        multiplier.run();
        multiplier.store();
    }
}

}  // namespace baracuda
