// The buffers of products whose right factor is made while they run: a ring of STAGES of them, of BLOCK_K of the depth.
#pragma once

#include <baracuda/arch/barrier.cuh>
#include <baracuda/matrix/made_table.cuh>
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

template <class Program> using MakerOf =
    typename Choice<Program::PAIRED, PairMaker<Program>, TableMaker<Program>>::type;

// Some of the block's warps multiply; LOADERS times as many load, in groups that take blocks of the depth in turn.
template <class Program> struct MadeTile {
    using Of = Factors<Program>;
    using Args = typename Program::Args;
    using T = typename Program::T;
    using Multiply = Mma<T>;
    static constexpr int LOADERS = Schedule::LOADERS, THREADS = Schedule::THREADS / (1 + LOADERS);
    static constexpr int TOKENS = Schedule::TOKENS, BLOCK_K = Schedule::BLOCK_K, STAGES = Schedule::STAGES;
    static constexpr int SIDES = THREADS / 32 * SLAB, WIDE = TOKENS / 16;
    static constexpr int WORDS = BLOCK_K / 8, PACKS = BLOCK_K / RUN;  // of a row
    static constexpr unsigned ALL_PACKS = PACKS == 32 ? ~0u : (1u << PACKS % 32) - 1;
    static constexpr int SPAN = PACKS & -PACKS;  // an XOR with less than this stays within a row
    static constexpr int RECORD = MakerOf<Program>::WORDS;
    static constexpr int LEFT_BYTES = TOKENS * BLOCK_K * int(sizeof(T)), WORD_BYTES = SIDES * WORDS * 4;
    static constexpr int FLAGS = 48;  // words, of which each warp has three
    static constexpr int STAGE = LEFT_BYTES + WORD_BYTES + SIDES * PACKS * RECORD * 4 + FLAGS * 4;
    static_assert(sizeof(T) == 2 && TOKENS % 16 == 0 && SPAN == PACKS, "whole instructions and packs");
    static_assert(THREADS / 32 <= 16 && 2 * STAGES < 16, "flags of all warps, and barriers of all buffers");
    // Panels of the depth, one after the other.
    using Left = SharedTile<T, TOKENS * BLOCK_K / PANEL, PANEL>;

    const Args& args;
    unsigned char* shared;
    long long token, side;  // the first of the block

    // Barriers that say that a buffer is full, or free.
    __device__ __forceinline__ static unsigned full(int slot) { return 1 + slot; }
    __device__ __forceinline__ static unsigned free(int slot) { return 1 + STAGES + slot; }
    __device__ __forceinline__ Left left(int slot) const { return {reinterpret_cast<T*>(shared + slot * STAGE)}; }
    // Where a pack of words is, `beside` rows (a multiple of 8, if any) from one: those of 8 rows lie in different
    // banks.
    __device__ __forceinline__ unsigned* words(int slot, int row, int pack, int beside = 0) const {
        unsigned* const of_slot = reinterpret_cast<unsigned*>(shared + slot * STAGE + LEFT_BYTES);
        return of_slot + row * WORDS + (pack ^ (row & (SPAN - 1) & 7)) * 4 + beside * WORDS;
    }
    // Of a warp, what its runs and rows have, the runs that have exact ones in all rows, those that have some, and
    // those that have others than the run before.
    __device__ __forceinline__ unsigned* records(int slot, int warp, int run = 0, int row = 0) const {
        return fast(slot, FLAGS) + ((warp * PACKS + run) * SLAB + row) * RECORD;
    }
    __device__ __forceinline__ unsigned* fast(int slot, int warp) const {
        return reinterpret_cast<unsigned*>(shared + slot * STAGE + LEFT_BYTES + WORD_BYTES) + warp;
    }
    __device__ __forceinline__ unsigned* some(int slot, int warp) const { return fast(slot, 16 + warp); }
    __device__ __forceinline__ unsigned* other(int slot, int warp) const { return fast(slot, 32 + warp); }
    __device__ __forceinline__ int blocks() const { return int((args.depth + BLOCK_K - 1) / BLOCK_K); }
};

}  // namespace baracuda
