// The index space of a map, and the offsets of its cells in each operand.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {

constexpr int MAX_AXES = 16;  // two shapes of eight, interleaved

// Every member of an argument struct is one or more 8-byte words, so the host fills it as an array. The cells of a
// space are counted in row-major order, its axes from the last one on, which is axis 0. Dividing by an extent is a
// multiplication by `magic` and a shift, exact below 2^31, or below 2^63 for WIDE indices.
struct Space {
    long long count, axes, extent[MAX_AXES], magic[MAX_AXES], shift[MAX_AXES];
};

// The whole numbers of a program: of 32 bits where the plan has found that they suffice.
#ifdef BARACUDA_SHORT
using whole_t = int;
#else
using whole_t = i64;
#endif

// A field by which a program divides, no less than 1 where the plan sets BARACUDA_DIVISORS.
struct Divisor {
    long long number;
#ifdef BARACUDA_DIVISORS
    long long magic, log;
#endif
    __device__ operator whole_t() const { return whole_t(number); }
};
namespace math {
template <typename A> __device__ auto floor_divide(A number, const Divisor& by) {
#ifdef BARACUDA_DIVISORS
    if constexpr (IsShort<A>::VALUE) {
        const int a = whole_of<A>(number), sign = a >> 31;
        return int(unsigned(wide_product(unsigned(a ^ sign), unsigned(by.magic)) >> 31) >> int(by.log)) ^ sign;
    } else
#endif
        return floor_divide(number, whole_t(by));
}
template <typename A> __device__ auto remainder(A number, const Divisor& by) {
#ifdef BARACUDA_DIVISORS
    return subtract(number, multiply(floor_divide(number, by), whole_t(by)));
#else
    return remainder(number, whole_t(by));
#endif
}
}  // namespace math

// An index of a dim, and the distance of two of them, if 31 bits count the cells: converting an int to float costs a
// quarter of converting 64 bits. `next` is the index of a cell in the second row of a pack; it is selected as late as
// possible, once for all indices of a distance.
struct SmallInt {
    unsigned here, next;
    bool in_first;
    __device__ int value() const { return int(in_first ? here : next); }
    __device__ operator whole_t() const { return value(); }
    __device__ explicit operator float() const { return float(value()); }
    __device__ explicit operator double() const { return double(value()); }
};
struct Index : SmallInt {};
struct Distance : SmallInt {};
namespace math {
__device__ inline Distance subtract(Index a, Index b) { return {{a.here - b.here, a.next - b.next, a.in_first}}; }
__device__ inline whole_t abs(SmallInt a) { return abs(a.value()); }
__device__ inline whole_t whole(SmallInt a) { return a.value(); }
template <> struct IsShort<Index> : IsShort<whole_t> {};
template <> struct IsShort<Distance> : IsShort<whole_t> {};
}  // namespace math

// Counts of cells and offsets in memory are of `type`, for either sign.
template <bool WIDE> struct CellIndex {
    using type = unsigned;
    using value = Index;
};
template <> struct CellIndex<true> {
    using type = u64;
    using value = i64;
};
__device__ inline int offset_of(unsigned place) { return int(place); }
__device__ inline i64 offset_of(u64 place) { return i64(place); }

// Makes the compiler compute a global address before offsets are added to it: each such sum is then one instruction.
template <typename T> __device__ T* materialized(T* address) {
#ifndef BARACUDA_HOST
    size_t global = __cvta_generic_to_global(address);
    asm("" : "+l"(global));
    address = static_cast<T*>(__cvta_global_to_generic(global));
#endif
    return address;
}

__device__ inline unsigned divide(unsigned n, long long magic, long long shift) {
    return __umulhi(n, unsigned(magic)) >> int(shift);
}
__device__ inline u64 divide(u64 n, long long magic, long long shift) {
#ifdef BARACUDA_HOST
    __extension__ using u128 = unsigned __int128;
    return u64((u128(n) * u64(magic)) >> 64) >> int(shift);
#else
    return __umul64hi(n, u64(magic)) >> int(shift);
#endif
}

// How N neighbouring cells lie in memory, N elements being 16 bytes.
enum class Layout {
    PACKED,   // contiguous in every operand, or one element for all of them: one offset for all N
    FLAT,     // in one or two rows of the last axis: an offset for each row
    STRIDED,  // anything: an offset for each cell
    SINGLE    // anything, one cell at a time, at many offsets from one base
};

// What is done with the cells' values.
enum class Walk {
    CELLS,    // they are stored
    COPIES,   // they are stored several times
    PAIRS,    // they are stored, two packs by a thread, which lie half of an axis apart
    ROWS,     // they are summed along the last axis and others
    COLUMNS,  // they are summed along other axes than the last
    SINGLES,  // as COLUMNS, each sum by one thread
    ORDER,    // their positions are ordered by key
    LISTS     // those that have a key in common are summed
};

// COLUMNS has no packs to move if cells are not PACKED: neighbouring threads take neighbouring cells.
__device__ constexpr Layout layout_of(Layout layout, Walk walk) {
    if (walk == Walk::SINGLES) return Layout::SINGLE;
    return walk == Walk::COLUMNS && layout == Layout::FLAT ? Layout::STRIDED : layout;
}

// How many of the N cells from `first` on exist.
template <int N, class I> __device__ int live_of(I first, long long count) {
    return first >= I(count) ? 0 : I(count) - first < I(N) ? int(I(count) - first) : N;
}

// Whether cell i of a pack exists; of PACKED ones, all do or none.
template <Layout LAYOUT> __device__ bool is_live(int i, int live) {
    return LAYOUT == Layout::PACKED ? live > 0 : i < live;
}

template <Layout LAYOUT, int N, int PACKS> __device__ bool all_live(const int (&live)[PACKS]) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) all = all && is_live<LAYOUT>(N - 1, live[k]);
    return all;
}

// The first operand that has the strides of another one, where the plan knows: compilers compute offsets of both once.
__device__ constexpr int alike(int operand) {
#ifdef BARACUDA_ALIKE
    constexpr int FIRST[] = {BARACUDA_ALIKE};
    return FIRST[operand];
#else
    return operand;
#endif
}

// Bit o of BARACUDA_STILL, which the plan sets: operand o is at the same place for both packs of a thread.
#ifndef BARACUDA_STILL
#define BARACUDA_STILL 0
#endif
__device__ constexpr bool is_still(int operand) { return operand < 64 && u64(BARACUDA_STILL) >> operand & 1; }

// Strides of operands along the axes of a space.
template <int OPERANDS> using Strides = long long[OPERANDS][MAX_AXES];

// The offsets of cells in each operand, in elements, along the axes from FIRST on. All cells at once, so that strides
// and extents are read once; those of the first NEAR axes are constant-bank operands of instructions.
template <int FIRST, class I, int CELLS, int OPERANDS>
__device__ void locate(I (&at)[CELLS][OPERANDS], const I (&cell)[CELLS], const Space& space,
                       const Strides<OPERANDS>& stride) {
    constexpr int NEAR = 4;
    const int last = int(space.axes) - 1;
    I rest[CELLS];
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        rest[c] = cell[c];
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) at[c][o] = 0;
    }
    const auto add = [&](int axis, bool divides) {
#pragma unroll
        for (int c = 0; c < CELLS; ++c) {
            const I quotient = divides ? divide(rest[c], space.magic[axis], space.shift[axis]) : 0;
            const I index = rest[c] - quotient * I(space.extent[axis]);
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) at[c][o] += index * I(stride[alike(o)][axis]);
            rest[c] = quotient;
        }
    };
#pragma unroll
    for (int axis = FIRST; axis < NEAR; ++axis) {
        if (axis >= last) return add(axis, false);
        add(axis, true);
    }
#pragma unroll 1
    for (int axis = NEAR; axis < last; ++axis) add(axis, true);
    add(last, false);
}

// Bit o of BARACUDA_SPLAT, which the plan sets: operand o has one offset for all cells of a PACKED pack. A kernel that
// knows has one register for its value; another one finds out as it reads, with registers for all.
#ifndef BARACUDA_SPLAT
#define BARACUDA_SPLAT 0
#endif
constexpr u64 SPLAT = BARACUDA_SPLAT;
__device__ constexpr bool is_splat(int operand) { return operand < 64 && SPLAT >> operand & 1; }
__device__ constexpr int count_splat() {
    int count = 0;
    for (int o = 0; o < 64; ++o) count += is_splat(o);
    return count;
}

// N neighbouring cells in each operand.
template <class I, int OPERANDS, Layout LAYOUT, int N> struct Run {
    static constexpr bool ONE_PLACE = N == 1 || LAYOUT == Layout::PACKED, ROWS = !ONE_PLACE && LAYOUT == Layout::FLAT;
    static constexpr bool SINGLE = LAYOUT == Layout::SINGLE;
    using type = I;
    static constexpr int PLACES = ONE_PLACE ? 1 : ROWS ? 2 : N;
    I first;                    // number of the first cell
    I place[PLACES][OPERANDS];  // ROWS: the second is of cell 0 if it were in the next row
    I base[OPERANDS];           // added to every place
    I last_stride[OPERANDS];    // stride along the last axis; of what is PACKED, and of an index, 0 or 1
    int left;                   // ROWS: this many cells lie in the first row

    __device__ bool in_first(int i) const { return !ROWS || i < left; }
    // The offset of cell i in an operand, from `base` on.
    __device__ I from_base(int operand, int i) const {
        if (!ONE_PLACE && !ROWS) return place[i % PLACES][operand];
        return (in_first(i) ? place[0][operand] : place[PLACES - 1][operand]) + step(operand, i);
    }
    __device__ I step(int operand, int i) const {
        return ONE_PLACE && is_splat(operand) ? 0 : i * last_stride[operand];
    }
    // The address of cell i, and of what lies so many elements behind it.
    template <typename T> __device__ T* at(T* data, int operand, int i, I behind = 0) const {
        if constexpr (SINGLE)
            return materialized(data + offset_of(place[0][operand])) + offset_of(base[operand] + behind);
        return data + offset_of(base[operand] + from_base(operand, i) + behind);
    }
    __device__ auto last_stride_of(int operand) const { return offset_of(last_stride[operand]); }
    // The address of cell 0 in an operand, or the one it would have in the second row.
    template <typename T> __device__ T* start(T* data, int operand, int row) const {
        return data + offset_of(base[operand] + place[row][operand]);
    }
    __device__ void index(i64& index, int operand, int i) const { index = i64(base[operand] + from_base(operand, i)); }
    __device__ void index(Index& index, int operand, int i) const {
        const I all = base[operand] + (ONE_PLACE || ROWS ? step(operand, i) : 0);
        const int row = ONE_PLACE || ROWS ? 0 : i % PLACES;
        index = {{all + place[row][operand], all + place[ROWS ? 1 : row][operand], in_first(i)}};
    }

    // Whether cells of the only place have consecutive indices from a multiple of COUNT on, and then that of cell i.
    template <int COUNT> __device__ bool counts(int operand) const {
        return last_stride[operand] == 1 && (base[operand] + place[0][operand]) % COUNT == 0;
    }
    template <int COUNT> __device__ i64 counted_index(int operand, int i) const {
        return i64(u64(base[operand] + place[0][operand]) / COUNT * COUNT) | i;
    }

    __device__ void move(const I (&by)[OPERANDS]) {
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) base[o] += by[o];
    }
    // Moves the run along the last axis.
    __device__ void advance(I cells, const Strides<OPERANDS>& stride) {
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) base[o] += cells * I(stride[alike(o)][0]);
    }
    // Makes all cells have the same place in an operand.
    __device__ void set(int operand, I to) {
        base[operand] = to, last_stride[operand] = 0;
#pragma unroll
        for (int i = 0; i < PLACES; ++i) place[i][operand] = 0;
    }
    __device__ void reset(const Strides<OPERANDS>& stride) {
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) {
            base[o] = 0;
            last_stride[o] = I(stride[alike(o)][0]);
        }
    }

    // How many of the cells from a column on lie in its row.
    __device__ static int left_of(I column, const Space& space) {
        const I beyond = I(space.extent[0]) - column;
        return beyond < I(N) ? int(beyond) : N;
    }
    // The cells from a column on, of a row that begins at `row`, followed by one that begins at `next`.
    __device__ void place_in(const I (&row)[OPERANDS], const I (&next)[OPERANDS], I column, const Space& space,
                             const Strides<OPERANDS>& stride) {
        reset(stride);
        left = left_of(column, space);
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) {
            place[0][o] = row[o] + column * last_stride[o];
            if (ROWS) place[PLACES - 1][o] = next[o] - left * last_stride[o];
        }
    }

    // Cells `cell_stride` apart, of which the first `live` exist: each offset is computed by itself.
    __device__ void find(I cell, I cell_stride, int live, const Space& space, const Strides<OPERANDS>& stride) {
        static_assert(!ROWS, "FLAT runs are placed by row");
        I cells[PLACES];
#pragma unroll
        for (int i = 0; i < PLACES; ++i) cells[i] = i < live ? cell + i * cell_stride : 0;
        locate<0>(place, cells, space, stride);
        reset(stride);
    }
};

}  // namespace baracuda
