// What programs say of a factor that a product's warps make: of codes of four bits, eight a word of 32 bits along the
// depth, and of what groups of these share. Programs of this form have the types of what their cells read: Codes, and
// First and Second of groups, or Nothing; PAIRED: First is a zero point and Second a scale; HIGH_FIRST: an element of
// codes has the first one in its high bits.
#pragma once

#include <baracuda/map/read.cuh>

namespace baracuda {

template <typename A, typename B> struct SameType {
    static constexpr bool VALUE = false;
};
template <typename A> struct SameType<A, A> {
    static constexpr bool VALUE = true;
};

struct Nothing {};
// The type of what is read, in memory.
template <class V> struct InMemory;
template <> struct InMemory<Nothing> {
    using type = unsigned char;
};
template <typename V, typename T, int NUMBER, class PLACES> struct InMemory<PlacedValue<V, T, NUMBER, PLACES>> {
    using type = T;
};

constexpr int RUN = 32;    // of the depth: a pack of 16 bytes of codes
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
    template <class Places, class Held, class A, class Axes, typename Outside, class F>
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

// The places along the depth of what groups share, of a run; NONE where it is not one place for all of it.
template <class Program> struct RunPlaces {
    static constexpr int NONE = -1;
    static constexpr bool HAS_FIRST = !SameType<typename Program::First, Nothing>::VALUE;
    static constexpr bool HAS_SECOND = !SameType<typename Program::Second, Nothing>::VALUE;
    long long begin, end;
    int first = HAS_FIRST ? NONE : 0, second = HAS_SECOND ? NONE : 0;

    struct Lane {
        long long depth;
        __device__ i64 index(int) const { return depth; }
    };
    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read&, V, const A&, const Axes& axes, Outside, const F& place_of) {
        if constexpr (SameType<V, typename Program::First>::VALUE) first = one(axes, place_of);
        if constexpr (SameType<V, typename Program::Second>::VALUE) second = one(axes, place_of);
    }
    template <class Axes, class F> __device__ int one(const Axes& axes, const F& place_of) const {
        i64 at[1], last[1];
        place_of(at, Lane{begin});
        place_of(last, Lane{end - 1});
        return at[0] == last[0] && axes.contain(at) && at[0] < 0x7fffffff ? int(at[0]) : NONE;
    }
};

// Where a row of what groups share is.
template <class Program> struct RunRows {
    using First = typename InMemory<typename Program::First>::type;
    using Second = typename InMemory<typename Program::Second>::type;
    long long side;
    const First* first;
    const Second* second;
    long long first_stride, second_stride;

    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, const F&) {
        if constexpr (SameType<V, typename Program::First>::VALUE)
            first = array.data + side * args.stride[A::OPERAND][1], first_stride = axes.stride[0];
        if constexpr (SameType<V, typename Program::Second>::VALUE)
            second = array.data + side * args.stride[A::OPERAND][1], second_stride = axes.stride[0];
    }
};

// Where codes are.
template <class Program> struct CodeArray {
    using Codes = typename InMemory<typename Program::Codes>::type;
    static constexpr int PARTS = 4 / int(sizeof(Codes));  // of a word
    static_assert(PARTS * sizeof(Codes) == 4, "words are whole elements");
    const Codes* data;
    long long side_stride, stride, count;

    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read& args, V, const A& array, const Axes& axes, Outside, const F&) {
        if constexpr (SameType<V, typename Program::Codes>::VALUE) {
            data = array.data;
            side_stride = args.stride[A::OPERAND][1], stride = axes.stride[0], count = axes.extent[0];
        }
    }
    // A word of a row; codes that do not exist are 0.
    __device__ unsigned word(long long side, long long place) const {
        unsigned word = 0;
        for (int i = 0; i < PARTS; ++i) {
            const long long at = place * PARTS + i;
            if (at >= count) continue;
            const unsigned bits = unsigned(data[side * side_stride + at * stride]);
            word |= (PARTS == 1 ? bits : bits & 0xffu) << (8 * i & 31);
        }
        return word;
    }
};

// The byte of a word that has codes `2 * pair` and the next; they are in the order of HIGH_FIRST.
template <class Program> __device__ __forceinline__ int byte_of(int pair) {
    return Program::HIGH_FIRST && CodeArray<Program>::PARTS == 1 ? 3 - pair : pair;
}

}  // namespace baracuda
