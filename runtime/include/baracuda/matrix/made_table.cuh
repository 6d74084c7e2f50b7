// Pairs of any function of a code of four bits: a table of its 16 values, from which bytes are permuted. Groups of
// codes have a table for each row.
#pragma once

#include <baracuda/matrix/made_cells.cuh>
#include <baracuda/matrix/made_pair.cuh>

namespace baracuda {

// The low and the high bytes of four values of 16 bits a word.
template <bool HIGH_FIRST> struct CodeTable {
    unsigned low[4], high[4];

    // Of four codes in the low bits of `codes`, two pairs.
    __device__ __forceinline__ void pairs(unsigned codes, unsigned& first, unsigned& second) const {
        const unsigned within = codes & 0x7777u, which = mask_and_set<0x4444u, 0x3210u>(codes >> 1);
        const unsigned of_low =
            __byte_perm(__byte_perm(low[0], low[1], within), __byte_perm(low[2], low[3], within), which);
        const unsigned of_high =
            __byte_perm(__byte_perm(high[0], high[1], within), __byte_perm(high[2], high[3], within), which);
        first = __byte_perm(of_low, of_high, HIGH_FIRST ? 0x4051u : 0x5140u);
        second = __byte_perm(of_low, of_high, HIGH_FIRST ? 0x6273u : 0x7362u);
    }
    // Halves lie in different banks for rows that are stored and loaded together.
    __device__ __forceinline__ static int beside(int row) { return row & 4; }
    __device__ __forceinline__ void store(unsigned* at, int row) const {
        *reinterpret_cast<uint4*>(at + beside(row)) = uint4{low[0], low[1], low[2], low[3]};
        *reinterpret_cast<uint4*>(at + (beside(row) ^ 4)) = uint4{high[0], high[1], high[2], high[3]};
    }
    __device__ __forceinline__ void load(const unsigned* at, int row) {
        Pack<unsigned, 4> of[2];
        of[0].load(at + beside(row)), of[1].load(at + (beside(row) ^ 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) low[i] = of[0].lane[i], high[i] = of[1].lane[i];
    }
};

// Makes tables of a row by the program itself, of which only what groups share is read later.
template <class Program> struct TableMaker {
    using Args = typename Program::Args;
    using T = typename Program::T;
    using Held = Packs<typename Program::Cells, 1, 1>;
    using Record = CodeTable<Program::HIGH_FIRST>;
    static constexpr int WORDS = 8;  // of a record
    using Code = typename CodeArray<Program>::Codes;

    const Args& args;
    Held packs[16];  // of each code

    __device__ __forceinline__ TableMaker(const Args& args, long long side) : args(args) {
#pragma unroll
        for (int code = 0; code < 16; ++code) {
            Reads reads = {packs[code], code};
            const MadeLane<Args, Held> lane = {{packs[code], 0, 0}, args, side, 0};
            Program::Cells::places(reads, args, MadeRead<Args, Held>{lane});
        }
    }
    __device__ __forceinline__ bool make(Record& record, typename RunRows<Program>::First first,
                                         typename RunRows<Program>::Second second) {
        unsigned pair[8];
#pragma unroll
        for (int code = 0; code < 16; ++code) {
            if constexpr (RunPlaces<Program>::HAS_FIRST) set<typename Program::First>(packs[code], first);
            if constexpr (RunPlaces<Program>::HAS_SECOND) set<typename Program::Second>(packs[code], second);
            packs[code].compute(args, MadeLanes<Args, Held>{{{packs[code], 0, 0}, args, 0, 0}});
            const unsigned bits = packs_out<typename Factors<Program>::Right>(packs[code])[0].lane[0].bits;
            pair[code / 2] = code % 2 ? pair[code / 2] | bits << 16 : bits;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            record.low[i] = __byte_perm(pair[2 * i], pair[2 * i + 1], 0x6420u);
            record.high[i] = __byte_perm(pair[2 * i], pair[2 * i + 1], 0x7531u);
        }
        return true;
    }

private:
    // What a cell reads but for what groups share: all of its element's codes are the same one.
    struct Reads {
        Held& packs;
        int code;
        template <class V, class Read, class A, class Axes, typename Outside, class F>
        __device__ __forceinline__ void place(const Read& read, V, const A& array, const Axes& axes, Outside outside,
                                              const F& place_of) {
            if constexpr (SameType<V, typename Program::Codes>::VALUE)
                set<V>(packs, Code(code * (sizeof(Code) == 1 ? 0x11u : 0x11111111u)));
            else if constexpr (!SameType<V, typename Program::First>::VALUE &&
                               !SameType<V, typename Program::Second>::VALUE)
                read.template at<typename V::Places>(packs_in<V>(packs), array, axes, outside, place_of);
        }
    };
    template <class V, typename E> __device__ __forceinline__ static void set(Held& packs, E value) {
        auto& pack = packs_in<V>(packs)[0];
        pack.clear(0);
        pack.words.set({{value}});
        pack.missing = 0;
    }
};

}  // namespace baracuda
