// Reads elements at computed places: those that lie outside of the array have a value of their own and are not read.
#pragma once

#include <baracuda/map/access.cuh>
#include <baracuda/map/body.cuh>

namespace baracuda {

// The axes of a tensor along which a program computes the place; along the others it is the cell's own.
template <int AXES> struct PlacedAxes {
    long long extent[AXES], stride[AXES];

    __device__ bool contain(const i64 (&place)[AXES]) const {
        bool inside = true;
#pragma unroll
        for (int a = 0; a < AXES; ++a) inside = inside && u64(place[a]) < u64(extent[a]);
        return inside;
    }
    __device__ bool contain(const int (&place)[AXES]) const {
        bool inside = true;
#pragma unroll
        for (int a = 0; a < AXES; ++a) inside = inside && unsigned(place[a]) < unsigned(extent[a]);
        return inside;
    }
    // Whether both places are on the same side of the array, and all between them.
    template <typename P> __device__ bool miss(const P (&first)[AXES], const P (&last)[AXES]) const {
        bool beside = false;
#pragma unroll
        for (int a = 0; a < AXES; ++a) {
            const P end = P(extent[a]);
            beside = beside || (first[a] < 0 && last[a] < 0) || (first[a] >= end && last[a] >= end);
        }
        return beside;
    }
    // Whether a place along one of the axes in WHICH is outside.
    template <unsigned WHICH, typename P> __device__ bool miss(const P (&place)[AXES]) const {
        bool outside = false;
#pragma unroll
        for (int a = 0; a < AXES; ++a)
            outside = outside || ((WHICH >> a & 1) && (place[a] < 0 || place[a] >= P(extent[a])));
        return outside;
    }
    // Whether the array has an element `by` elements in memory from a place inside.
    template <typename P> __device__ bool has_beside(const P (&place)[AXES], int by) const {
        bool has = false;
#pragma unroll
        for (int a = 0; a < AXES; ++a)
            has = has || (stride[a] == 1 && place[a] + by >= 0 && place[a] + by < P(extent[a]));
        return has;
    }
    template <class I, typename P> __device__ I offset(const P (&place)[AXES]) const {
        I offset = 0;
#pragma unroll
        for (int a = 0; a < AXES; ++a) offset += I(place[a]) * I(stride[a]);
        return offset;
    }
};

// A tensor that is read at computed places.
template <typename T, int AXES> struct Placed {
    const T* data;
    const PlacedAxes<AXES>& axes;
    int operand;
    template <class R, typename P> __device__ const T* at(const R& run, int i, const P (&place)[AXES]) const {
        return run.at(data, operand, i, axes.template offset<typename R::type>(place));
    }
};

// Reads the cells of a run whose places are equally far apart, and so are their addresses, from those of the first and
// the last cell. All are inside if these are, and outside if these leave the array on one side. False if neither is
// known.
template <typename P, typename V, int N, typename T, class R, int AXES>
__device__ bool read_even(PlacedPack<V, T, N>& to, const Placed<T, AXES>& from, const R& run, const P (&first)[AXES],
                          const P (&last)[AXES]) {
    const bool inside = from.axes.contain(first) & from.axes.contain(last);
    const bool misses = from.axes.miss(first, last);
    using I = typename R::type;
    const I begin = from.axes.template offset<I>(first), end = from.axes.template offset<I>(last);
    const auto across = run.last_stride_of(from.operand) * (N - 1) + offset_of(I(end - begin));
    const T* const start = run.at(from.data, from.operand, 0, begin);
    if (across == 2 * (N - 1) & !misses && reinterpret_cast<u64>(start + 1) % alignof(Pack<T, N>) == 0) {
        P next[AXES];  // the first may be outside; the others are every second element of two packs behind it
#pragma unroll
        for (int a = 0; a < AXES; ++a) next[a] = first[a] + (last[a] - first[a]) / (N - 1);
        const bool in_row = from.axes.has_beside(next, -1) & from.axes.has_beside(last, 2);
        if (in_row & from.axes.contain(next) & from.axes.contain(last)) {
            to.load_behind(start + 1, start, from.axes.contain(first));
            return true;
        }
    }
    if (!inside & !misses) return false;
    if (!inside | (across == N - 1 & reinterpret_cast<u64>(start) % alignof(Pack<T, N>) == 0)) {
        to.load_if(start, inside);
        return true;
    }
    if (across == N - 1) {
        to.load_unaligned(start);
        return true;
    }
    if (across == 2 * (N - 1)) {  // two packs hold them, if these are aligned and in the array
        const bool second = reinterpret_cast<u64>(start) / sizeof(T) % 2;
        const T* const packs = start - second;
        if (reinterpret_cast<u64>(packs) % alignof(Pack<T, N>) == 0 &&
            (second ? from.axes.has_beside(first, -1) : from.axes.has_beside(last, 1))) {
            to.load_every_second(packs, second);
            return true;
        }
    }
    const auto apart = across / (N - 1);
    to.each([&](T& element, int i) {
        element = start[i * apart];
        return true;
    });
    return true;
}

// The same of an aligned pack that is in the array, or nothing, as if it is not `wanted`. It has no branches, behind
// which loads would wait for each other.
template <typename P, typename V, int N, int SWAPPED, typename T, class R, int AXES>
__device__ bool load_pack(PlacedPack<V, T, N, SWAPPED>& to, const Placed<T, AXES>& from, const R& run,
                          const P (&first)[AXES], const P (&last)[AXES], bool wanted) {
    using I = typename R::type;
    const I begin = from.axes.template offset<I>(first), end = from.axes.template offset<I>(last);
    const auto across = run.last_stride_of(from.operand) * (N - 1) + offset_of(I(end - begin));
    const T* const start = run.at(from.data, from.operand, 0, begin);
    const bool is_pack = (across == N - 1) & (reinterpret_cast<u64>(start) % alignof(Pack<T, N>) == 0);
    const bool loads = wanted & is_pack & from.axes.contain(first) & from.axes.contain(last);
    to.load_if(start, loads);
    return loads;
}

// How places change from cell to cell, and what reads all of a run at once where it can. `place_of(place, i)` computes
// the place of cell i.

// They are equally far apart in a run along which none of OPERANDS moves.
template <typename PLACE, int... OPERANDS> struct Even {
    using place_t = PLACE;
    static constexpr int SWAPPED = 0;
    // Whether there are some, and each has one element for all cells of a pack: then its places are mostly one pack's.
    static constexpr bool NAME_PACKS = sizeof...(OPERANDS) > 0 && (true && ... && is_splat(OPERANDS));
    static constexpr bool IN_PACKS = false, OF_CELL = false;
    static constexpr bool WINDOWS = (true && ... && is_splat(OPERANDS));
    template <class R> __device__ static bool hold([[maybe_unused]] const R& run) {
        return (true && ... && (R::ONE_PLACE && SPLAT ? is_splat(OPERANDS) : run.last_stride[OPERANDS] == 0));
    }
    template <typename V, int N, typename T, class R, int AXES, class F>
    __device__ static bool read(PlacedPack<V, T, N>& to, const Placed<T, AXES>& from, const R& run, const F& place_of) {
        PLACE first[AXES], last[AXES];
        if (!hold(run)) return false;
        place_of(first, 0);
        place_of(last, N - 1);
        return read_even(to, from, run, first, last);
    }
};

// The same of cells in one piece of the program, which `place_of` returns, and in which they are if two of them are.
// The places along the axes in SAME are those of all cells.
template <typename PLACE, unsigned SAME, int... OPERANDS> struct EvenPieces {
    using place_t = PLACE;
    static constexpr int SWAPPED = 0;
    static constexpr bool NAME_PACKS = false, IN_PACKS = true, OF_CELL = false, WINDOWS = false;
    template <typename V, int N, typename T, class R, int AXES, class F>
    __device__ static bool read(PlacedPack<V, T, N>& to, const Placed<T, AXES>& from, const R& run, const F& place_of) {
        PLACE first[AXES], last[AXES];
        if (!Even<PLACE, OPERANDS...>::hold(run)) return false;
        const int piece = place_of(first, 0);
        if (from.axes.template miss<SAME>(first)) return true;
        return R::ONE_PLACE && load_pack(to, from, run, first, last, place_of(last, N - 1) == piece);
    }
    template <typename V, int N, typename T, class R, int AXES, class F>
    __device__ static bool read_pack(PlacedPack<V, T, N>& to, const Placed<T, AXES>& from, const R& run,
                                     const F& place_of) {
        PLACE first[AXES], last[AXES];
        const bool in_piece = place_of(first, 0) == place_of(last, N - 1);
        return load_pack(to, from, run, first, last, in_piece & Even<PLACE, OPERANDS...>::hold(run));
    }
};

// The place is that of the cell itself, along the dim that operand INDEX counts, but for the bits in MASK.
template <typename PLACE, int INDEX, int MASK> struct Swapped {
    using place_t = PLACE;
    static constexpr int SWAPPED = MASK;
    static constexpr bool NAME_PACKS = false, IN_PACKS = true, OF_CELL = true, WINDOWS = false;
    template <typename V, int N, int IN_PACK, typename T, class R, class F>
    __device__ static bool read(PlacedPack<V, T, N, IN_PACK>& to, const Placed<T, 1>& from, const R& run,
                                const F& place_of) {
        if (R::ONE_PLACE && run.template counts<N>(INDEX)) return read_pack(to, from, run, place_of);
        if constexpr (MASK == 0) return Even<PLACE>::read(to, from, run, place_of);
        return false;
    }
    template <typename V, int N, int IN_PACK, typename T, class R, class F>
    __device__ static bool read_pack(PlacedPack<V, T, N, IN_PACK>& to, const Placed<T, 1>& from, const R& run,
                                     const F& place_of) {
        PLACE first[1];
        place_of(first, 0);
        first[0] -= IN_PACK;
        return load_pack(to, from, run, first, {first[0] + PLACE(N - 1)}, run.template counts<N>(INDEX));
    }
};

// Cells of several runs that lie in one aligned pack each, or are every second element of two, from the first, the
// second or the one before on: terms of a window. Places along all axes but the last are one for all cells of a run.
// All packs are in flight before one is waited for.
template <typename T, int N, int TERMS> struct Windows {
    const T* packs[TERMS];
    bool loads[TERMS], apart[TERMS], odd[TERMS], behind[TERMS], begins[TERMS];

    // False unless all are such, or outside; `place_of(place, k, i)` is of cell i of run k.
    template <typename P, class R, int AXES, class F>
    __device__ bool find(const Placed<T, AXES>& from, const R (&run)[TERMS], const int (&live)[TERMS],
                         const F& place_of) {
        using I = typename R::type;
        constexpr int ALONG = AXES - 1;
        const auto extent = unsigned(from.axes.extent[ALONG]);
        const bool in_row = I(from.axes.stride[ALONG]) == 1;
        bool all = true;
#pragma unroll
        for (int k = 0; k < TERMS; ++k) {
            P first[AXES], last[AXES];
            place_of(first, k, 0);
            place_of(last, k, N - 1);
            bool exists = true, one = true;
#pragma unroll
            for (int a = 0; a < ALONG; ++a) {
                exists &= unsigned(first[a]) < unsigned(from.axes.extent[a]);
                one &= first[a] == last[a];
            }
            const I begin = from.axes.template offset<I>(first), end = from.axes.template offset<I>(last);
            const auto across = run[k].last_stride_of(from.operand) * (N - 1) + offset_of(I(end - begin));
            const T* const start = run[k].at(from.data, from.operand, 0, begin);
            const int at = int(reinterpret_cast<u64>(start) / sizeof(T)) & (N - 1);
            apart[k] = across == 2 * (N - 1);
            behind[k] = apart[k] & (at == N - 1);
            const int back = behind[k] ? -1 : at;
            const auto low = unsigned(first[ALONG] - back), high = low + unsigned(apart[k] ? 2 * N - 1 : N - 1);
            const bool fits = in_row & (low < extent) & (high < extent) & (high >= low);
            const bool is_pack = (across == N - 1) & (at == 0), are_two = apart[k] & ((at <= 1) | behind[k]);
            all &= (live[k] <= 0) | (one & (!exists | (fits & (is_pack | are_two))));
            loads[k] = (live[k] > 0) & exists;
            odd[k] = at != 0;
            begins[k] = first[ALONG] >= 0;
            packs[k] = start - back;
        }
        return all;
    }
    template <typename V> __device__ void read(PlacedPack<V, T, N> (&to)[TERMS], V outside) const {
        PackWords<T, N> high[TERMS];
        T before[TERMS];
#pragma unroll
        for (int k = 0; k < TERMS; ++k) {
            to[k].clear(outside);
            before[k] = T(outside);
            high[k] = to[k].words;
            to[k].load_if(packs[k], loads[k]);
            high[k].load_if(packs[k] + N, loads[k] & apart[k]);
            if (loads[k] & behind[k] & begins[k]) before[k] = *(packs[k] - 1);
        }
#pragma unroll
        for (int k = 0; k < TERMS; ++k) {
            if (loads[k] & apart[k]) {
                const PackWords<T, N> low = to[k].words;
                to[k].words.pick(low, high[k], odd[k]);
            }
            if (loads[k] & behind[k]) to[k].shift(before[k], begins[k]);
            to[k].words.settle();
        }
    }
};

// Where the packs of several runs are whose places are those of an aligned pack, or one that is outside.
template <typename T, int PACKS> struct NamedPacks {
    const T* start[PACKS];
    bool inside[PACKS];

    // False unless all are such packs; `place_of(place, k, i)` is of cell i of run k.
    template <typename P, int N, class R, int AXES, class F>
    __device__ bool find(const Placed<T, AXES>& from, const R (&run)[PACKS], const int (&live)[PACKS],
                         const F& place_of) {
        using I = typename R::type;
        bool all = true;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            P first[AXES], last[AXES];
            place_of(first, k, 0);
            place_of(last, k, N - 1);
            const I begin = from.axes.template offset<I>(first), end = from.axes.template offset<I>(last);
            start[k] = run[k].at(from.data, from.operand, 0, begin);
            inside[k] = live[k] > 0 & from.axes.contain(first) & from.axes.contain(last);
            bool alike = true;
#pragma unroll
            for (int a = 0; a < AXES; ++a) alike &= first[a] == last[a];
            const bool is_near = run[k].last_stride_of(from.operand) + offset_of(I(end - begin)) / (N - 1) == 1;
            const bool is_pack = is_near & (reinterpret_cast<u64>(start[k]) % alignof(Pack<T, N>) == 0);
            all &= (inside[k] & is_pack) | (live[k] <= 0) | (alike & !from.axes.contain(first));
        }
        return all;
    }
    // Reads them: all are in flight before anything is made of one.
    template <typename V, int N> __device__ void read(PlacedPack<V, T, N> (&packs)[PACKS], V outside) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            packs[k].clear(outside);
            packs[k].load_if(start[k], inside[k]);
        }
    }
};

// Computes the place of each cell by itself. Of a PACKED run, all cells exist.
template <typename P, Layout LAYOUT, typename V, int N, int SWAPPED, typename T, class R, int AXES, class F>
__device__ void read_each(PlacedPack<V, T, N, SWAPPED>& to, const Placed<T, AXES>& from, const R& run, int live,
                          const F& place_of) {
    to.each([&](T& element, int i) {
        if (LAYOUT != Layout::PACKED && i >= live) return false;
        P place[AXES];
        place_of(place, i);
        const T* const address = from.at(run, i, place);  // found for all lanes at once, whatever is inside
        const bool inside = from.axes.contain(place);
        if (inside) element = *address;
        return inside;
    });
}

// The elements of a run's cells.
template <class Places, Layout LAYOUT, typename V, int N, int SWAPPED, typename T, class R, int AXES, class F>
__device__ void read_places(PlacedPack<V, T, N, SWAPPED>& to, const Placed<T, AXES>& from, V outside, const R& run,
                            int live, const F& place_of) {
    to.clear(outside);
    if constexpr (N > 1 && (R::ONE_PLACE || R::ROWS)) {
        const bool in_row = is_live<LAYOUT>(N - 1, live) && (R::ONE_PLACE || run.left >= N);
        if (in_row && Places::read(to, from, run, place_of)) return;
    }
    if (LAYOUT != Layout::PACKED || live > 0)
        read_each<typename Places::place_t, LAYOUT>(to, from, run, live, place_of);
}

}  // namespace baracuda
