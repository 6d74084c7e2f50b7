// Maps: a program computed for every cell of an index space, its values stored or summed along some of the axes.
#pragma once

#include <baracuda/arch/async.cuh>
#include <baracuda/map/access.cuh>
#include <baracuda/map/find.cuh>

namespace baracuda {

// How work is partitioned. Sums: 2^slice_bits threads share an owner, `splits` blocks share a sum, and a block adds
// `per_split` of an owner's `units`; 2^reduce_bits threads then add the splits. Cells: a block makes `per_split` of the
// `units` copies.
struct Cut {
    long long units, slice_bits, splits, per_split, reduce_bits;
};

// Maps threads to owners and slices: neighbouring lanes are slices of one owner (ROWS), or neighbouring owners.
template <int THREADS_, bool ROWS> struct Share {
    static constexpr int THREADS = THREADS_;
    static constexpr bool NEIGHBOURS = ROWS;  // slices of an owner
    static_assert((THREADS & (THREADS - 1)) == 0, "owners and slices are powers of two");
    int slices, owners, slice, owner;
    int interleave_bits;  // the 2^interleave_bits slices of a warp take units alternately
    __device__ explicit Share(long long bits) : slices(1 << int(bits)), owners(THREADS >> int(bits)) {
        constexpr int WARP_BITS = 5;
        const int thread = threadIdx.x, owner_bits = 31 - __clz(owners);
        slice = ROWS ? thread & (slices - 1) : thread >> owner_bits;
        owner = ROWS ? thread >> int(bits) : thread & (owners - 1);
        const int most = ROWS ? WARP_BITS : owner_bits < WARP_BITS ? WARP_BITS - owner_bits : 0;
        interleave_bits = int(bits) < most ? int(bits) : most;
    }
};

template <class I> __device__ I end_of_split(const Cut& cut) {
    const long long beyond = (blockIdx.y + 1) * cut.per_split;
    return I(beyond < cut.units ? beyond : cut.units);
}

// The output cells of a thread's owner: contiguous if packs are moved, else strided, so that threads are neighbours.
template <class I, Layout LAYOUT, int OUTPUTS> struct OutputCells {
    I first, cell_stride;
    int live;
    template <class Share> __device__ OutputCells(const Share& share, long long count) {
        constexpr bool PACKED = OUTPUTS == 1 || LAYOUT == Layout::PACKED;
        cell_stride = PACKED ? 1 : share.owners;
        // Of PACKED cells, all of a pack or none exist.
        first = I(blockIdx.x) * share.owners * OUTPUTS + share.owner * (PACKED ? OUTPUTS : 1);
        live = PACKED ? live_of<OUTPUTS>(first, count) : 0;
#pragma unroll
        for (int i = 0; !PACKED && i < OUTPUTS; ++i) live += first + i * cell_stride < I(count);
    }
};

// The units of its owner that a thread takes: [begin, end) in steps of `step`.
template <class I> struct Units {
    I begin, end;
    int step;
    template <class Share> __device__ Units(const Cut& cut, const Share& share) : step(1 << share.interleave_bits) {
        const I length = I(cut.per_split) >> (int(cut.slice_bits) - share.interleave_bits);
        const I from = I(blockIdx.y * cut.per_split) + (share.slice >> share.interleave_bits) * length;
        begin = from + (share.slice & (step - 1));
        end = from + length < I(cut.units) ? from + length : I(cut.units);
    }
};

// The terms of an owner, a unit being a pack of terms along the last axis (ROWS) or one of each of its cells (COLUMNS).
template <class I, int OPERANDS, Layout LAYOUT, int N, bool ROWS> struct Terms {
    static constexpr int OUTPUTS = ROWS ? 1 : N, CELLS = ROWS ? N : 1;  // cells of a unit along the summed axes
    using R = Run<I, OPERANDS, LAYOUT, N>;
    Run<I, OPERANDS, LAYOUT, OUTPUTS> origin;
    Walker<I, OPERANDS, ROWS && R::ROWS ? 2 : 1> walker;
    int outer_live;

    __device__ Terms(I first, I cell_stride, int live, const Space& outer, const Strides<OPERANDS>& stride)
        : outer_live(live) {
        origin.find(first, cell_stride, live, outer, stride);
    }

    // Units [unit, ...), `step` apart. WHOLE: all exist, with all their cells.
    template <bool WHOLE, int GROUP>
    __device__ void place(R (&run)[GROUP], int (&live)[GROUP], I unit, int step, I end, const Space& summed,
                          const Strides<OPERANDS>& stride) {
        if constexpr (WHOLE && ROWS && R::ONE_PLACE) {
            if (place_near<true>(run, live, unit, step, end, summed, stride)) return;
        }
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const I at = unit + I(k) * step;
            const bool exists = WHOLE || at < end;
            live[k] = WHOLE ? N : !exists ? 0 : ROWS ? live_of<N>(at * N, summed.count) : outer_live;
            place(run[k], live[k], exists ? at : unit, summed, stride);
        }
    }
    // The same, if they are in one row of the summed axes: its offsets are then computed once.
    template <bool WHOLE, int GROUP>
    __device__ bool place_near(R (&run)[GROUP], int (&live)[GROUP], I unit, int step, I end, const Space& summed,
                               const Strides<OPERANDS>& stride) {
        const I column = walker.seek(unit * CELLS, summed, stride);
        if (column + I(GROUP - 1) * step * CELLS >= I(summed.extent[0])) {
            if (WHOLE || unit + I(GROUP - 1) * step < end) return false;
        }
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const bool exists = WHOLE || unit + I(k) * step < end;
            live[k] = WHOLE ? N : exists ? outer_live : 0;
            place_in_row(run[k], exists ? column + I(k) * step * CELLS : column, summed, stride);
        }
        return true;
    }
    // How often a thread takes so many units, `step` apart, of which all exist in the row of `unit`.
    __device__ I turns_in_row(I unit, int step, int units, I end, const Space& summed,
                              const Strides<OPERANDS>& stride) {
        if (unit >= end || outer_live != OUTPUTS) return 0;
        const I in_row = (I(summed.extent[0]) - walker.seek(unit * CELLS, summed, stride)) / CELLS;
        const I left = in_row < end - unit ? in_row : end - unit;
        return (left + step - 1) / step / units;
    }
    // Whether all of so many units exist, with all their cells.
    __device__ bool are_whole(I first, I last, I end, const Space& summed) const {
        return last < end && first <= last && (ROWS ? I(last * N) + N <= I(summed.count) : outer_live == N);
    }

    __device__ void place(R& run, int live, I unit, const Space& summed, const Strides<OPERANDS>& stride) {
        if constexpr (!ROWS || R::ONE_PLACE || R::ROWS) {
            place_in_row(run, walker.seek(unit * CELLS, summed, stride), summed, stride);
        } else {
            run.find(unit * N, I(1), live, summed, stride);
            run.move(origin.place[0]);
        }
    }
    __device__ void place_in_row(R& run, I column, const Space& summed, const Strides<OPERANDS>& stride) {
        if constexpr (ROWS) {
            run.place_in(walker.begin[0], walker.begin[R::ROWS], column, summed, stride);
            run.move(origin.place[0]);
        } else {
            run = origin;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run.base[o] = walker.begin[0][o] + column * I(stride[alike(o)][0]);
        }
    }
};

}  // namespace baracuda
