// Where the cells of a map lie in each operand: the index space, and what is found once for many cells.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>

namespace baracuda {

constexpr int MAX_AXES = 16;  // two shapes of eight, interleaved

// Every member of an argument struct is one or more 8-byte words, so the host fills it as an array. The cells of a
// space are counted in row-major order. Dividing by an extent is a multiplication by `magic` and a shift: exact below
// 2^31, or below 2^63 for WIDE indices.
struct Space {
    long long count, axes, extent[MAX_AXES], magic[MAX_AXES], shift[MAX_AXES];
};

// An index of a dim, and how far two of them are apart: where 31 bits count the cells, an int holds either, and converts
// to float at a quarter of the cost of 64 bits.
struct SmallInt {
    int value;
    __device__ operator i64() const { return value; }
    __device__ explicit operator float() const { return float(value); }
    __device__ explicit operator double() const { return double(value); }
};
struct Index : SmallInt {};
struct Distance : SmallInt {};
namespace math {
__device__ inline Distance subtract(Index a, Index b) { return {{a.value - b.value}}; }
}  // namespace math

template <bool WIDE> struct CellIndex { using type = unsigned; using value = Index; };
template <> struct CellIndex<true> { using type = u64; using value = i64; };

__device__ inline unsigned divide(unsigned n, long long magic, long long shift) {
    return unsigned((u64(n) * unsigned(magic)) >> 32) >> int(shift);
}
__device__ inline u64 divide(u64 n, long long magic, long long shift) {
#ifdef BARACUDA_HOST
    __extension__ using u128 = unsigned __int128;
    return u64((u128(n) * u64(magic)) >> 64) >> int(shift);
#else
    return __umul64hi(n, u64(magic)) >> int(shift);
#endif
}

// What N neighbouring cells are like in memory, N elements being 16 bytes.
enum class Layout {
    PACKED,  // neighbours in every operand, or one element for all of them: a place for all N
    FLAT,    // of one row of the last axis or of two: a place for each row
    STRIDED  // anything: a place for each cell
};

// What becomes of the cells' values.
enum class Walk {
    CELLS,   // they are stored
    ROWS,    // they are summed along the last axis and others
    COLUMNS  // they are summed along other axes than the last
};

// Cells of a column lie in COLUMNS wherever they like: with no packs to move, neighbouring threads take neighbours.
__device__ constexpr Layout layout_of(Layout layout, Walk walk) {
    return walk == Walk::COLUMNS && layout == Layout::FLAT ? Layout::STRIDED : layout;
}

// How a block works: a thread has PACKS packs of 16 bytes in flight.
template <int THREADS_, int PACKS_> struct Schedule { static constexpr int THREADS = THREADS_, PACKS = PACKS_; };

// How many of the N cells from `first` on there are.
template <int N, class I> __device__ int live_of(I first, long long count) {
    return first >= I(count) ? 0 : I(count) - first < I(N) ? int(I(count) - first) : N;
}

// Whether cell i of a pack is there; of PACKED ones, all are or none.
template <Layout LAYOUT> __device__ bool is_live(int i, int live) {
    return LAYOUT == Layout::PACKED ? live > 0 : i < live;
}

template <Layout LAYOUT, int N, int PACKS> __device__ bool all_live(const int (&live)[PACKS]) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) all = all && is_live<LAYOUT>(N - 1, live[k]);
    return all;
}

// Strides of operands along the axes of a space.
template <int OPERANDS> using Strides = long long[OPERANDS][MAX_AXES];

// Where cells lie in each operand, counted in elements, when they are counted along the first `axes` axes. All cells at
// once: strides and extents are read once for all.
template <class I, int CELLS, int OPERANDS>
__device__ void locate(long long (&at)[CELLS][OPERANDS], const I (&cell)[CELLS], const Space& space,
                       const Strides<OPERANDS>& stride, int axes) {
    I rest[CELLS];
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        rest[c] = cell[c];
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) at[c][o] = 0;
    }
#pragma unroll 1
    for (int axis = axes - 1; axis > 0; --axis) {
        const I extent = I(space.extent[axis]);
        const long long magic = space.magic[axis], shift = space.shift[axis];
#pragma unroll
        for (int c = 0; c < CELLS; ++c) {
            const I quotient = divide(rest[c], magic, shift);
            const long long index = rest[c] - quotient * extent;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) at[c][o] += index * stride[o][axis];
            rest[c] = quotient;
        }
    }
#pragma unroll
    for (int c = 0; c < CELLS; ++c)
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) at[c][o] += (long long)rest[c] * stride[o][0];
}

// A cell's row, of those along the last axis, and its column.
template <class I> struct RowColumn { I row, column; };
template <class I> __device__ RowColumn<I> split(I cell, const Space& space) {
    const int last = int(space.axes) - 1;
    const I row = divide(cell, space.magic[last], space.shift[last]);
    return {row, cell - row * I(space.extent[last])};
}

// Strides along the last axis fit in an int except where anything goes: a product with a column is one instruction.
template <Layout LAYOUT> struct StepOf { using type = int; };
template <> struct StepOf<Layout::STRIDED> { using type = long long; };
__device__ inline long long times(unsigned column, int step) { return (long long)int(column) * step; }
__device__ inline long long times(unsigned column, long long step) { return column * step; }
__device__ inline long long times(u64 column, long long step) { return (long long)column * step; }
__device__ inline long long times(u64 column, int step) { return (long long)column * step; }

// N neighbouring cells in each operand.
template <int OPERANDS, Layout LAYOUT, int N> struct Run {
    static constexpr bool ONE = N == 1 || LAYOUT == Layout::PACKED, ROWS = !ONE && LAYOUT == Layout::FLAT;
    static constexpr int PLACES = ONE ? 1 : ROWS ? 2 : N;
    long long first;                    // number of the first cell
    long long place[PLACES][OPERANDS];  // ROWS: the second is where cell 0 would be, were the next row this one
    using Step = typename StepOf<LAYOUT>::type;
    long long base[OPERANDS];           // what every place is counted from
    Step inner[OPERANDS];               // stride along the last axis; of what is PACKED, and of an index, 0 or 1
    int left;                           // ROWS: this many cells lie in the first row

    // Where cell i lies in an operand.
    __device__ long long from_base(int operand, int i) const {
        if (ONE) return place[0][operand] + i * inner[operand];
        if (ROWS) return (i < left ? place[0][operand] : place[PLACES - 1][operand]) + i * inner[operand];
        return place[i % PLACES][operand];
    }
    __device__ long long at(int operand, int i) const { return base[operand] + from_base(operand, i); }
    __device__ void index(Index& index, int operand, int i) const { index.value = int(at(operand, i)); }
    __device__ void index(i64& index, int operand, int i) const { index = at(operand, i); }

    __device__ void move(const long long (&by)[OPERANDS]) {
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) base[o] += by[o];
    }

    // The cells from a column on, of a row that begins at `row`, followed by one that begins at `next`.
    template <class I>
    __device__ void place_in(const long long (&row)[OPERANDS], const long long (&next)[OPERANDS], I column,
                             const Space& space, const Strides<OPERANDS>& stride) {
        const int last = int(space.axes) - 1;
        const I beyond = I(space.extent[last]) - column;
        left = beyond < I(N) ? int(beyond) : N;
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) {
            inner[o] = Step(stride[o][last]);
            base[o] = 0;
            place[0][o] = row[o] + times(column, inner[o]);
            if (ROWS) place[PLACES - 1][o] = next[o] - times(I(left), inner[o]);
        }
    }

    // Cells `apart` from each other, of which the first `live` are there: each is found by itself.
    template <class I>
    __device__ void find(I cell, I apart, int live, const Space& space, const Strides<OPERANDS>& stride) {
        static_assert(!ROWS, "rows are remembered");
        I cells[PLACES];
#pragma unroll
        for (int i = 0; i < PLACES; ++i) cells[i] = i < live ? cell + i * apart : 0;
        locate(place, cells, space, stride, int(space.axes));
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) {
            base[o] = 0;
            inner[o] = Step(stride[o][space.axes - 1]);
        }
    }
};

// Where the rows begin that a block's cells lie in, which are neighbours: each thread finds one row, and all read them.
template <class I, int THREADS, int OPERANDS> struct Rows {
    I top, count;
    long long (*begin)[OPERANDS];

    __device__ Rows(I from, I end, const Space& space, const Strides<OPERANDS>& stride) {
        __shared__ long long found[THREADS][OPERANDS];
        begin = found;
        top = split(from, space).row;
        count = split(end - 1, space).row - top + 2;  // one more, which FLAT packs may reach into
        const I row[1] = {top + I(threadIdx.x)}, rows = split(I(space.count - 1), space).row + 1;
        if (count > rows - top) count = rows - top;
        if (threadIdx.x < count) {
            long long at[1][OPERANDS];
            locate(at, row, space, stride, int(space.axes) - 1);
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) found[threadIdx.x][o] = at[0][o];
        }
        __syncthreads();
    }

    template <Layout LAYOUT, int N>
    __device__ void place(Run<OPERANDS, LAYOUT, N>& run, I cell, const Space& space,
                          const Strides<OPERANDS>& stride) const {
        const RowColumn<I> at = split(cell, space);
        const I row = at.row - top, next = row + 1 < count ? row + 1 : row;
        run.first = (long long)cell;
        run.place_in(begin[row], begin[next], at.column, space, stride);
    }
};

// Finds cells that mostly follow each other in a row, which is remembered: of FLAT runs, so is the row after it.
template <class I, int OPERANDS, int ROWS> struct Walker {
    I row = ~I(0);
    long long begin[ROWS][OPERANDS];

    // The column of a cell, whose row then begins at `begin`.
    __device__ I seek(I cell, const Space& space, const Strides<OPERANDS>& stride) {
        const RowColumn<I> at = split(cell, space);
        if (at.row != row) {
            row = at.row;
            I rows[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) rows[r] = row + r;  // what is found beyond the last is never read
            locate(begin, rows, space, stride, int(space.axes) - 1);
        }
        return at.column;
    }
};

}  // namespace baracuda
