// Computes offsets of many cells of a map at once: those of a block, and those that a thread visits one after another.
#pragma once

#include <baracuda/map/place.cuh>

namespace baracuda {

// A cell's row along the last axis, and its column.
template <class I> struct RowColumn {
    I row, column;
};
template <class I> __device__ RowColumn<I> split(I cell, const Space& space) {
    const I row = divide(cell, space.magic[0], space.shift[0]);
    return {row, cell - row * I(space.extent[0])};
}

// Computes the offsets of each cell by itself.
template <class I, int CELLS, int N, int OPERANDS, bool FLAT> struct Finder {
    __device__ Finder(I, const Space&, const Strides<OPERANDS>&) {}
    template <class R>
    __device__ void find(R& run, I cell, int live, const Space& space, const Strides<OPERANDS>& stride) const {
        run.find(cell, I(1), live, space, stride);
    }
};

// For CELLS consecutive FLAT cells of a block: the threads compute the offsets of all rows together, in shared memory.
template <class I, int CELLS, int N, int OPERANDS> struct Finder<I, CELLS, N, OPERANDS, true> {
    static constexpr int ROWS = CELLS / N + 2;  // a row has at least N cells; the last packs reach into one row more
    I top;
    I (*begin)[OPERANDS];

    __device__ Finder(I from, const Space& space, const Strides<OPERANDS>& stride) {
        __shared__ I found[ROWS][OPERANDS];
        begin = found;
        top = split(from, space).row;
        const I rest = I(space.count) - from, last = from + (rest < I(CELLS) ? rest : I(CELLS)) - 1;
        const I count = split(last, space).row - top + 2;
        for (I r = threadIdx.x; r < count; r += blockDim.x) {
            I at[1][OPERANDS];
            const I row[1] = {top + r};
            locate<1>(at, row, space, stride);  // offsets beyond the last row are never used
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) found[r][o] = at[0][o];
        }
        __syncthreads();
    }
    template <class R>
    __device__ void find(R& run, I cell, int, const Space& space, const Strides<OPERANDS>& stride) const {
        const RowColumn<I> at = split(cell, space);
        run.place_in(begin[at.row - top], begin[at.row - top + 1], at.column, space, stride);
    }
};

// For cells visited along a row: caches the offsets of the current row, and of the next one for FLAT runs.
template <class I, int OPERANDS, int ROWS> struct Walker {
    I row = ~I(0);
    I begin[ROWS][OPERANDS];

    // The column of a cell, whose row then begins at `begin`.
    __device__ I seek(I cell, const Space& space, const Strides<OPERANDS>& stride) {
        const RowColumn<I> at = split(cell, space);
        if (at.row != row) {
            row = at.row;
            I rows[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) rows[r] = row + r;  // offsets beyond the last row are never used
            locate<1>(begin, rows, space, stride);
        }
        return at.column;
    }
};

}  // namespace baracuda
