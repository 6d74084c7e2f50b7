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
        first = I(blockIdx.x) * share.owners * OUTPUTS + share.owner * (PACKED ? OUTPUTS : 1);
        live = 0;
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) live += first + i * cell_stride < I(count);
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
    static constexpr int OUTPUTS = ROWS ? 1 : N;
    using R = Run<I, OPERANDS, LAYOUT, N>;
    Run<I, OPERANDS, LAYOUT, OUTPUTS> origin;
    Walker<I, OPERANDS, ROWS && R::ROWS ? 2 : 1> walker;
    int outer_live;

    __device__ Terms(I first, I cell_stride, int live, const Space& outer, const Strides<OPERANDS>& stride)
        : outer_live(live) {
        origin.find(first, cell_stride, live, outer, stride);
    }

    template <int GROUP>
    __device__ void place(R (&run)[GROUP], int (&live)[GROUP], I unit, int step, I end, const Space& summed,
                          const Strides<OPERANDS>& stride) {
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const I at = unit + I(k) * step;
            live[k] = at >= end ? 0 : ROWS ? live_of<N>(at * N, summed.count) : outer_live;
            place(run[k], live[k], at >= end ? unit : at, summed, stride);
        }
    }

    __device__ void place(R& run, int live, I unit, const Space& summed, const Strides<OPERANDS>& stride) {
        if constexpr (!ROWS) {
            const I column = walker.seek(unit, summed, stride);
            run = origin;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run.base[o] = walker.begin[0][o] + column * I(stride[o][0]);
        } else {
            if constexpr (R::ONE_PLACE || R::ROWS) {
                const I column = walker.seek(unit * N, summed, stride);
                run.place_in(walker.begin[0], walker.begin[R::ROWS], column, summed, stride);
            } else {
                run.find(unit * N, I(1), live, summed, stride);
            }
            run.move(origin.place[0]);
        }
    }
};

// Compensated summation: the error does not grow with the number of terms.
template <typename A> struct Compensated {
    A high = 0, low = 0;

    __device__ void add(A term) {
        const A sum = high + term, seen = sum - high;
        low += (high - (sum - seen)) + (term - seen);
        high = sum;
    }
    // Once the sum is infinite or NaN, `low` means nothing.
    __device__ A total() const { return low - low == A(0) ? high + low : high; }
};

// Pairwise summation of a step's terms, as far as pairs are complete once the GROUP terms at `from` are.
template <int GROUP, typename A, int STEPS, int N> __device__ void pair_up(A (&term)[STEPS][N], int from) {
    static_assert((STEPS & (STEPS - 1)) == 0 && (N & (N - 1)) == 0, "terms pair up");
#pragma unroll
    for (int half = 1; half < STEPS; half *= 2)
#pragma unroll
        for (int s = half; s < STEPS; s += 2 * half) {
            if (s + half <= from || s + half > from + GROUP) continue;
#pragma unroll
            for (int i = 0; i < N; ++i) term[s - half][i] += term[s][i];
        }
}

// Adds a step's pairwise sums. Rows: one sum; columns: one for each lane.
template <int OUTPUTS, typename A, int STEPS, int N>
__device__ void add_terms(Compensated<A> (&sum)[OUTPUTS], A (&term)[STEPS][N]) {
    if (OUTPUTS == 1) {
#pragma unroll
        for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; ++i) term[0][i] += term[0][i + half];
    }
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) sum[i].add(term[0][i]);
}

// Adds the slices of an owner pairwise; slice 0 gets the sum. Neighbouring owners are contiguous in scratch.
template <int OUTPUTS, typename A, class Share>
__device__ void reduce_slices(A (&sum)[OUTPUTS], const Compensated<A> (&part)[OUTPUTS], const Share& share) {
    // Aligned, so that 16-byte reads of one touch no other.
    struct alignas(16) Scratch {
        A of[OUTPUTS][Share::THREADS];
    };
    __shared__ Scratch scratch;
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) sum[i] = part[i].total();
    for (int half = share.slices / 2; half > 0; half /= 2) {
        __syncthreads();  // the last values have been read
        if (share.slice >= half && share.slice < 2 * half) {
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) scratch.of[i][(share.slice - half) * share.owners + share.owner] = sum[i];
        }
        __syncthreads();
        if (share.slice < half) {
#pragma unroll
            for (int i = 0; i < OUTPUTS; ++i) sum[i] += scratch.of[i][share.slice * share.owners + share.owner];
        }
    }
}

// The sum of `splits` partial sums `pitch` apart; each slice adds every slices-th.
template <typename A, class Share>
__device__ void reduce_parts(A (&sum)[1], const A* part, long long splits, long long pitch, bool live,
                             const Share& share) {
    Compensated<A> mine[1];
    if (live) {
#pragma unroll 4
        for (long long p = share.slice; p < splits; p += share.slices) mine[0].add(part[p * pitch]);
    }
    reduce_slices(sum, mine, share);
}

template <int OUTPUTS, typename A, class I>
__device__ void write_parts(A* parts, const A (&sum)[OUTPUTS], I cell_stride, int live) {
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i)
        if (i < live) parts[i * cell_stride] = sum[i];
}

}  // namespace baracuda
