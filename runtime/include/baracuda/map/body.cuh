// What a program makes of a cell, and the packs that a thread holds for it. A program names the arrays of its
// arguments,
//     struct Cells : Body<Reads<&Args::x_>, Writes<&Args::y_>>
// and `compute` has each lane's elements: `lane.in(args.x_)`, `lane.store(args.y_, value)`.
#pragma once

#include <baracuda/pack.cuh>

namespace baracuda {

// An argument with an offset for each cell: OPERAND of the walk. The types of a program's arrays differ by it.
template <typename T, int OPERAND_, bool PRESENT_ = true> struct Array {
    using element_t = T;
    static constexpr int OPERAND = OPERAND_;
    static constexpr bool PRESENT = PRESENT_;
    T* data;
};
// What is read at computed places, as a value of type V: number NUMBER of a body. How PLACES change from cell to cell
// is in read.cuh.
template <typename V, typename T, int NUMBER, class PLACES> struct PlacedValue {
    using element_t = V;
    using Places = PLACES;
};
// Whether the plan knows that arrays can hold the fields that are read outside of them.
#ifdef BARACUDA_EXACT_FILL
constexpr bool EXACT_FILL = BARACUDA_EXACT_FILL;
#else
constexpr bool EXACT_FILL = false;
#endif
// Whether a value stays what it is as an element of type T; known in time of zero and infinity if they are written out.
template <typename T, typename V> __device__ bool is_exact_as(V value) {
    return value + value == value || V(T(value)) == value;
}
template <typename T, typename R> __device__ bool is_exact_as(const Complex<R>& value) {
    using Part = decltype(T::real);
    return is_exact_as<Part>(value.real) && is_exact_as<Part>(value.imag);
}
// N elements that were read so, as they are in memory: values would take more registers. Those that are `missing` have
// the value `outside`, if T cannot hold it. Element i ^ SWAPPED is of cell i.
template <typename V, typename T, int N, int SWAPPED = 0> struct PlacedPack {
    PackWords<T, N> words;
    unsigned missing;
    V outside;

    __device__ void clear(V value) {
        outside = value;
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.lane[i] = T(value);
        words.set(pack);
        missing = EXACT_FILL || is_exact_as<T>(value) ? 0 : (1u << N) - 1;
    }
    // All of an aligned pack, or nothing.
    __device__ void load_if(const T* address, bool should) {
        words.load_if(address, should);
        missing = should ? 0 : missing;
    }
    // All of what begins anywhere.
    __device__ void load_unaligned(const T* address) {
        words.load_unaligned(address);
        words.settle();
        missing = 0;
    }
    // Every second element of two packs, which begin at an aligned address; the first or the second of each pair.
    __device__ void load_every_second(const T* address, bool second) {
        PackWords<T, N> low, high;
        low.load(address), high.load(address + N);
        words.pick(low, high, second);
        missing = 0;
    }
    // Of two packs every second element from the second one on, behind one that is read if it `exists`.
    __device__ void load_behind(const T* address, const T* first, bool exists) {
        load_every_second(address, true);
        shift(exists ? *first : T(outside), exists);
    }
    // Each element to the next cell; `first` becomes that of cell 0, if it `exists`.
    __device__ void shift(T first, bool exists) {
        const Pack<T, N> from = __builtin_bit_cast(Pack<T, N>, words);
        Pack<T, N> all;
        all.lane[0] = first;
#pragma unroll
        for (int i = 1; i < N; ++i) all.lane[i] = from.lane[i - 1];
        words.set(all);
        missing = exists || EXACT_FILL || is_exact_as<T>(outside) ? 0 : 1;
    }
    // The element of cell i is what `read(element, i)` reads, if it does.
    template <class Read> __device__ void each(const Read& read) {
        Pack<T, N> pack = __builtin_bit_cast(Pack<T, N>, words);
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (read(pack.lane[i ^ SWAPPED], i)) missing &= ~(1u << (i ^ SWAPPED));
        words.set(pack);
        words.settle();
    }
};
template <typename V, typename T, int N, int SWAPPED>
__device__ V value_of(const PlacedPack<V, T, N, SWAPPED>& of, int i) {
    const int at = i ^ SWAPPED;
    return of.missing >> at & 1 ? of.outside : V(value_of(__builtin_bit_cast(Pack<T, N>, of.words), at));
}
template <int VALUE_> struct Int {
    static constexpr int VALUE = VALUE_;
};
template <auto...> struct Reads {};
template <auto...> struct Writes {};

template <class A, int N, int PACKS> struct PacksIn {
    Pack<typename Mutable<typename A::element_t>::type, N> pack[PACKS];
};
template <typename V, typename T, int NUMBER, class PLACES, int N, int PACKS>
struct PacksIn<PlacedValue<V, T, NUMBER, PLACES>, N, PACKS> {
    PlacedPack<V, T, N, PLACES::SWAPPED&(N - 1)> pack[PACKS];
};
// The same until all are read, in one way or another: of lanes, a choice between them takes more registers.
template <class A, int N, int PACKS> struct WordsIn {
    PackWords<typename Mutable<typename A::element_t>::type, N> words[PACKS];
};
template <class A, int N, int PACKS> struct PacksOut {
    Pack<typename A::element_t, N> pack[PACKS];
};
template <class A, int N, int PACKS> __device__ auto& packs_in(PacksIn<A, N, PACKS>& of) { return of.pack; }
template <class A, int N, int PACKS> __device__ auto& packs_in(const PacksIn<A, N, PACKS>& of) { return of.pack; }
template <class A, int N, int PACKS> __device__ auto& packs_in(WordsIn<A, N, PACKS>& of) { return of.words; }
template <class A, int N, int PACKS> __device__ auto& packs_out(PacksOut<A, N, PACKS>& of) { return of.pack; }
template <class A, int N, int PACKS> __device__ auto& packs_out(const PacksOut<A, N, PACKS>& of) { return of.pack; }
template <auto MEMBER> using ArrayOf = typename MemberType<decltype(MEMBER)>::type;

// Lane i of pack k of those that a thread holds.
template <class P> struct PackLane {
    P& packs;
    int k, i;
    template <class A> __device__ auto in(const A&) const { return value_of(packs_in<A>(packs)[k], i); }
    // The element as it is stored.
    template <class A> __device__ auto& raw(const A&) const { return packs_in<A>(packs)[k].lane[i]; }
    template <class A, typename V> __device__ void store(const A&, V value) const {
        packs_out<A>(packs)[k].lane[i] = value;
    }
};

template <class Reads, class Writes, class... Places> struct Body;
template <auto... READS, auto... WRITES, class... Places>
struct Body<Reads<READS...>, Writes<WRITES...>, Places...> {
    // Whether what it reads at computed places lies in packs, as a rule: at the cell's own place but for some bits, and
    // at places in pieces.
    static constexpr bool IN_PACKS =
        (false || ... || Places::Places::OF_CELL) && (true && ... && Places::Places::IN_PACKS);
    template <int N, int PACKS>
    struct Held : PacksIn<ArrayOf<READS>, N, PACKS>...,
                  PacksIn<Places, N, PACKS>...,
                  PacksOut<ArrayOf<WRITES>, N, PACKS>... {};

    template <int N, int PACKS> struct Words : WordsIn<ArrayOf<READS>, N, PACKS>... {};

    template <class P, class Args, class Read> __device__ static void read_arrays(P& packs, const Args& args,
                                                                                  const Read& f) {
        (read<READS>(packs, args, f), ...);
    }
    template <class P, int N, int PACKS> __device__ static void take_words(P& packs, Words<N, PACKS>& words) {
        (take<READS>(packs, words), ...);
    }
    template <class P, class Args, class Write>
    __device__ static void write_arrays(const P& packs, const Args& args, const Write& f) {
        (write<WRITES>(packs, args, f), ...);
    }
    // What is read at computed places: nothing, unless a program says so.
    template <class P, class Args, class Read> __device__ static void places(P&, const Args&, const Read&) {}

private:
    template <auto MEMBER, class P, int N, int PACKS> __device__ static void take(P& packs, Words<N, PACKS>& words) {
        using A = ArrayOf<MEMBER>;
#pragma unroll
        for (int k = 0; A::PRESENT && k < PACKS; ++k) packs_in<A>(packs)[k] = packs_in<A>(words)[k].pack();
    }
    template <auto MEMBER, class P, class Args, class F>
    __device__ static void read(P& packs, const Args& args, const F& f) {
        using A = ArrayOf<MEMBER>;
        if constexpr (A::PRESENT) f(packs_in<A>(packs), (args.*MEMBER).data, A::OPERAND);
    }
    template <auto MEMBER, class P, class Args, class F>
    __device__ static void write(const P& packs, const Args& args, const F& f) {
        using A = ArrayOf<MEMBER>;
        if constexpr (A::PRESENT) f(packs_out<A>(packs), (args.*MEMBER).data, A::OPERAND);
    }
};

// The packs of N lanes that a thread holds for a body.
template <class Of, int N, int PACKS> struct Packs : Of::template Held<N, PACKS> {
    template <class Args, class Read> __device__ void reads(const Args& args, const Read& read) {
        Of::read_arrays(*this, args, read);
        Of::places(*this, args, read);
    }
    __device__ void take(typename Of::template Words<N, PACKS>& words) { Of::take_words(*this, words); }
    // Reads a tensor at the places that `place_of` computes of a lane.
    template <class V, class Read, class A, class Axes, typename Outside, class F>
    __device__ void place(const Read& read, V, const A& array, const Axes& axes, Outside outside, const F& place_of) {
        read.template at<typename V::Places>(packs_in<V>(*this), array, axes, outside, place_of);
    }
    template <class Args, class Lanes> __device__ void compute(const Args& args, const Lanes& lanes) {
        Of::compute(args, lanes);
    }
    template <class Args, class Write> __device__ void writes(const Args& args, const Write& write) const {
        Of::write_arrays(*this, args, write);
    }
};

// What programs have if they do not say otherwise: whether they read at computed places, draw random numbers, and
// reduce along all axes in the order in which places of extremes are counted, in how many phases they reduce the
// columns of a product, and how many reductions there are of its rows.
struct MapProgram {
    static constexpr int SINKS = 0, BANDS = 0;
    static constexpr bool PLACED = false, RANDOM = false, IN_ORDER = false;
    using T = BARACUDA_ELEMENT;
    using acc_t = acc_of<T>;
};

}  // namespace baracuda
