// The cells of a map that are found together: neighbours of a block, and those that a thread takes in turn.
#pragma once

#include <baracuda/map/place.cuh>

namespace baracuda {

// A cell's row, of those along the last axis, and its column.
template <class I> struct RowColumn {
    I row, column;
};
template <class I> __device__ RowColumn<I> split(I cell, const Space& space) {
    const I row = divide(cell, space.magic[0], space.shift[0]);
    return {row, cell - row * I(space.extent[0])};
}

// Finds the places of cells, each by itself.
template <class I, int CELLS, int N, int OPERANDS, bool FLAT> struct Finder {
    __device__ Finder(I, const Space&, const Strides<OPERANDS>&) {}
    template <class R>
    __device__ void find(R& run, I cell, int live, const Space& space, const Strides<OPERANDS>& stride) const {
        run.find(cell, I(1), live, space, stride);
    }
};

// Of FLAT cells that are neighbours, CELLS to a block: where their rows begin is found once for all threads, and then
// read by each.
template <class I, int CELLS, int N, int OPERANDS> struct Finder<I, CELLS, N, OPERANDS, true> {
    static constexpr int ROWS = CELLS / N + 2;  // each has N cells or more; the last packs reach into one more
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
            locate<1>(at, row, space, stride);  // what is found beyond the last is never read
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

// Finds cells that mostly follow each other in a row, which is remembered: of FLAT runs, so is the row after it.
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
            for (int r = 0; r < ROWS; ++r) rows[r] = row + r;  // what is found beyond the last is never read
            locate<1>(begin, rows, space, stride);
        }
        return at.column;
    }
};

}  // namespace baracuda
