// Maps: a program computed for every cell of an index space, its values stored or summed along some of the axes.
#pragma once

#include <baracuda/map/access.cuh>
#include <baracuda/map/find.cuh>

namespace baracuda {

// How work is shared out. Sums: 2^slice_bits threads to an owner, `splits` blocks to a sum, each block `per_split` of
// the `units` that an owner sums; 2^fold_bits threads to what the splits are added up to. Cells: a block makes
// `per_split` of the `units` copies of its own.
struct Cut {
    long long units, slice_bits, splits, per_split, fold_bits;
};

// A thread's place among THREADS: an owner's slices lie side by side in a warp (ROWS), or neighbouring owners do.
template <int THREADS_, bool ROWS> struct Share {
    static constexpr int THREADS = THREADS_;
    static_assert((THREADS & (THREADS - 1)) == 0, "owners and slices are powers of two");
    int slices, owners, slice, owner;
    int stretch_bits;  // the 2^stretch_bits slices that lie in a warp share a stretch of units, which they take in turn
    __device__ explicit Share(long long bits) : slices(1 << int(bits)), owners(THREADS >> int(bits)) {
        constexpr int WARP_BITS = 5;
        const int thread = threadIdx.x, owner_bits = 31 - __clz(owners);
        slice = ROWS ? thread & (slices - 1) : thread >> owner_bits;
        owner = ROWS ? thread >> int(bits) : thread & (owners - 1);
        const int most = ROWS ? WARP_BITS : owner_bits < WARP_BITS ? WARP_BITS - owner_bits : 0;
        stretch_bits = int(bits) < most ? int(bits) : most;
    }
};

template <class I> __device__ I end_of_split(const Cut& cut) {
    const long long beyond = (blockIdx.y + 1) * cut.per_split;
    return I(beyond < cut.units ? beyond : cut.units);
}

// The kept cells of a thread's owner: neighbours where packs are moved, else those of neighbouring threads are.
template <class I, Layout LAYOUT, int KEPT> struct KeptCells {
    I first, apart;
    int live;
    template <class Share> __device__ KeptCells(const Share& share, long long count) {
        constexpr bool PACKED = KEPT == 1 || LAYOUT == Layout::PACKED;
        apart = PACKED ? 1 : share.owners;
        first = I(blockIdx.x) * share.owners * KEPT + share.owner * (PACKED ? KEPT : 1);
        live = 0;
#pragma unroll
        for (int i = 0; i < KEPT; ++i) live += first + i * apart < I(count);
    }
};

// The units that a thread takes of those of its owner: from `begin` on, `step` apart, before `end`.
template <class I> struct Units {
    I begin, end;
    int step;
    template <class Share> __device__ Units(const Cut& cut, const Share& share) : step(1 << share.stretch_bits) {
        const I length = I(cut.per_split) >> (int(cut.slice_bits) - share.stretch_bits);
        const I from = I(blockIdx.y * cut.per_split) + (share.slice >> share.stretch_bits) * length;
        begin = from + (share.slice & (step - 1));
        end = from + length < I(cut.units) ? from + length : I(cut.units);
    }
};

// The terms of an owner, a unit being a pack of terms along the last axis (ROWS) or one of each of its cells (COLUMNS).
template <class I, int OPERANDS, Layout LAYOUT, int N, bool ROWS> struct Terms {
    static constexpr int KEPT = ROWS ? 1 : N;
    using R = Run<I, OPERANDS, LAYOUT, N>;
    Run<I, OPERANDS, LAYOUT, KEPT> home;
    Walker<I, OPERANDS, ROWS && R::ROWS ? 2 : 1> walker;
    int kept_live;

    __device__ Terms(I first, I apart, int live, const Space& kept, const Strides<OPERANDS>& stride) : kept_live(live) {
        home.find(first, apart, live, kept, stride);
    }

    template <int GROUP>
    __device__ void place(R (&run)[GROUP], int (&live)[GROUP], I unit, int step, I end, const Space& summed,
                          const Strides<OPERANDS>& stride) {
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const I at = unit + I(k) * step;
            live[k] = at >= end ? 0 : ROWS ? live_of<N>(at * N, summed.count) : kept_live;
            place(run[k], live[k], at >= end ? unit : at, summed, stride);
        }
    }

    __device__ void place(R& run, int live, I unit, const Space& summed, const Strides<OPERANDS>& stride) {
        if constexpr (!ROWS) {
            const I column = walker.seek(unit, summed, stride);
            run = home;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run.base[o] = walker.begin[0][o] + column * I(stride[o][0]);
        } else {
            if constexpr (R::ONE || R::ROWS) {
                const I column = walker.seek(unit * N, summed, stride);
                run.place_in(walker.begin[0], walker.begin[R::ROWS], column, summed, stride);
            } else {
                run.find(unit * N, I(1), live, summed, stride);
            }
            run.move(home.place[0]);
        }
    }
};

// A running sum and what its additions rounded away, so that its error does not grow with the number of terms.
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

// Of the terms of a turn, add up those pairs, pairs of pairs and so on that are complete once GROUP more are there.
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

// Add what a thread gathered in one turn and paired up. A row has one sum; of columns, each lane has its own.
template <int KEPT, typename A, int STEPS, int N>
__device__ void add_terms(Compensated<A> (&sum)[KEPT], A (&term)[STEPS][N]) {
    if (KEPT == 1) {
#pragma unroll
        for (int half = N / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; ++i) term[0][i] += term[0][i + half];
    }
#pragma unroll
    for (int i = 0; i < KEPT; ++i) sum[i].add(term[0][i]);
}

// What the slices of an owner summed, pairwise; slice 0 gets it. Neighbouring owners lie side by side in scratch.
template <int KEPT, typename A, class Share>
__device__ void fold_slices(A (&sum)[KEPT], const Compensated<A> (&part)[KEPT], const Share& share) {
    // Aligned, so that 16-byte reads of one touch no other.
    struct alignas(16) Scratch {
        A of[KEPT][Share::THREADS];
    };
    __shared__ Scratch scratch;
#pragma unroll
    for (int i = 0; i < KEPT; ++i) sum[i] = part[i].total();
    for (int half = share.slices / 2; half > 0; half /= 2) {
        __syncthreads();  // what was there has been read
        if (share.slice >= half && share.slice < 2 * half) {
#pragma unroll
            for (int i = 0; i < KEPT; ++i) scratch.of[i][(share.slice - half) * share.owners + share.owner] = sum[i];
        }
        __syncthreads();
        if (share.slice < half) {
#pragma unroll
            for (int i = 0; i < KEPT; ++i) sum[i] += scratch.of[i][share.slice * share.owners + share.owner];
        }
    }
}

// The sum of `splits` parts that lie `pitch` apart, of which each slice adds every slices-th.
template <typename A, class Share>
__device__ void fold_parts(A (&sum)[1], const A* part, long long splits, long long pitch, bool live,
                           const Share& share) {
    Compensated<A> mine[1];
    if (live) {
#pragma unroll 4
        for (long long p = share.slice; p < splits; p += share.slices) mine[0].add(part[p * pitch]);
    }
    fold_slices(sum, mine, share);
}

template <int KEPT, typename A, class I>
__device__ void write_parts(A* parts, const A (&sum)[KEPT], I apart, int live) {
#pragma unroll
    for (int i = 0; i < KEPT; ++i)
        if (i < live) parts[i * apart] = sum[i];
}

}  // namespace baracuda
