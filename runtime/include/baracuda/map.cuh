// Maps: a program computed for every cell of an index space, its values stored or summed along some of the axes.
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

template <bool WIDE> struct CellIndex { using type = unsigned; };
template <> struct CellIndex<true> { using type = u64; };

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

// How a block works: a thread has PACKS packs of 16 bytes in flight.
template <int THREADS_, int PACKS_> struct Schedule { static constexpr int THREADS = THREADS_, PACKS = PACKS_; };

// How many of `packs` packs of N cells a thread works on at once: places of FLAT and STRIDED packs take many registers.
__device__ constexpr int at_once(Layout layout, int N, int packs) {
    return N == 1 || layout == Layout::PACKED ? packs : layout == Layout::FLAT ? packs / 2 : 1;
}

// How many of the N cells from `first` on there are.
template <int N, class I> __device__ int live_of(I first, long long count) {
    return first >= I(count) ? 0 : I(count) - first < I(N) ? int(I(count) - first) : N;
}

// Whether cell i of a pack is there; of PACKED ones, all are or none.
template <Layout LAYOUT> __device__ bool is_live(int i, int live) {
    return LAYOUT == Layout::PACKED ? live > 0 : i < live;
}

// Strides of operands along the axes of a space.
template <int OPERANDS> using Strides = long long[OPERANDS][MAX_AXES];

// Where cells lie in each operand, counted in elements. All cells at once: strides and extents are read once for all.
template <class I, int CELLS, int OPERANDS>
__device__ void locate(long long (&at)[CELLS][OPERANDS], const I (&cell)[CELLS], const Space& space,
                       const Strides<OPERANDS>& stride) {
    I rest[CELLS];
#pragma unroll
    for (int c = 0; c < CELLS; ++c) {
        rest[c] = cell[c];
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) at[c][o] = 0;
    }
#pragma unroll 1
    for (int axis = int(space.axes) - 1; axis > 0; --axis) {
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

// N neighbouring cells in each operand.
template <int OPERANDS, Layout LAYOUT, int N> struct Run {
    static constexpr bool ONE = N == 1 || LAYOUT == Layout::PACKED, ROWS = !ONE && LAYOUT == Layout::FLAT;
    static constexpr int PLACES = ONE ? 1 : ROWS ? 2 : N;
    long long first;                    // number of the first cell
    long long place[PLACES][OPERANDS];  // ROWS: the second is where cell 0 would be, were the next row this one
    long long inner[OPERANDS];          // stride along the last axis; of what is PACKED, and of an index, 0 or 1
    int left;                           // ROWS: this many cells lie in the first row

    // Where cell i lies in an operand.
    __device__ long long at(int operand, int i) const {
        if (ONE) return place[0][operand] + (inner[operand] ? i : 0);
        if (ROWS) return (i < left ? place[0][operand] : place[PLACES - 1][operand]) + i * inner[operand];
        return place[i % PLACES][operand];
    }

    __device__ void move(const long long (&by)[OPERANDS]) {
#pragma unroll
        for (int p = 0; p < PLACES; ++p)
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) place[p][o] += by[o];
    }

    // Find the second place by carrying: the row after that of `cell` begins one step of some axis further on.
    template <class I> __device__ void find_next_row(I cell, const Space& space, const Strides<OPERANDS>& stride) {
        const int last = int(space.axes) - 1;
        const long long extent = space.extent[last];
        I row = last ? divide(cell, space.magic[last], space.shift[last]) : 0;
        const long long beyond = extent - (cell - row * I(extent));
        left = beyond < N ? int(beyond) : N;
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) place[PLACES - 1][o] = place[0][o] - extent * stride[o][last];
        if (left == N) return;
#pragma unroll 1
        for (int axis = last - 1; axis >= 0; --axis) {
            const I up = axis ? divide(row, space.magic[axis], space.shift[axis]) : 0;
            const bool carries = axis && row - up * I(space.extent[axis]) == I(space.extent[axis] - 1);
            const long long steps = carries ? 1 - space.extent[axis] : 1;
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) place[PLACES - 1][o] += steps * stride[o][axis];
            if (!carries) return;
            row = up;
        }
    }
};

// Find the N cells from first[k] on.
template <class I, int RUNS, int OPERANDS, Layout LAYOUT, int N>
__device__ void place(Run<OPERANDS, LAYOUT, N> (&run)[RUNS], const I (&first)[RUNS], const Space& space,
                      const Strides<OPERANDS>& stride) {
    using R = Run<OPERANDS, LAYOUT, N>;
    long long at[RUNS][OPERANDS];
    if constexpr (R::ONE || R::ROWS) locate(at, first, space, stride);
#pragma unroll
    for (int k = 0; k < RUNS; ++k) {
        run[k].first = (long long)first[k];
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) run[k].inner[o] = stride[o][space.axes - 1];
        if constexpr (R::ONE || R::ROWS) {
#pragma unroll
            for (int o = 0; o < OPERANDS; ++o) run[k].place[0][o] = at[k][o];
            if constexpr (R::ROWS) run[k].find_next_row(first[k], space, stride);
        } else {
            I cell[N];
#pragma unroll
            for (int i = 0; i < N; ++i) cell[i] = first[k] + i < I(space.count) ? first[k] + i : first[k];
            locate(run[k].place, cell, space, stride);
        }
    }
}

// The first live[k] cells of each run from a tensor's memory, which may start anywhere. Bit `operand` of `whole`: N
// cells of the tensor are an aligned pack.
template <typename T, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void read(Pack<T, N> (&pack)[PACKS], const T* data, const Run<OPERANDS, LAYOUT, N> (&run)[PACKS],
                     int operand, long long whole, const int (&live)[PACKS]) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if ((whole >> operand & 1) && is_live<LAYOUT>(N - 1, live[k])) {
            pack[k].load(data + run[k].at(operand, 0));
        } else if (LAYOUT == Layout::PACKED) {
            if (live[k]) pack[k].lane[0] = data[run[k].at(operand, 0)];
#pragma unroll
            for (int i = 1; i < N; ++i) pack[k].lane[i] = pack[k].lane[0];
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < live[k]) pack[k].lane[i] = data[run[k].at(operand, i)];
        }
    }
}

// ALL: the tensor has a value for each cell of the space, which FLAT packs of it hold in the order they are counted.
template <bool ALL, typename T, int N, int PACKS, int OPERANDS, Layout LAYOUT>
__device__ void write(const Pack<T, N> (&pack)[PACKS], T* data, const Run<OPERANDS, LAYOUT, N> (&run)[PACKS],
                      int operand, long long whole, const int (&live)[PACKS]) {
    constexpr bool FLAT = ALL && LAYOUT == Layout::FLAT && N > 1;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        T* const start = data + (FLAT ? run[k].first : run[k].at(operand, 0));
        if (LAYOUT == Layout::PACKED) {
            if (live[k]) pack[k].store(start);
        } else if ((FLAT || (whole >> operand & 1)) && live[k] == N) {
            pack[k].store(start);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (i < live[k]) (FLAT ? start[i] : data[run[k].at(operand, i)]) = pack[k].lane[i];
        }
    }
}

// The packs of N cells that a thread works on, neighbours in memory belonging to neighbouring threads.
template <int THREADS, int N, int PACKS, class I>
__device__ void packs_of_thread(I (&first)[PACKS], int (&live)[PACKS], long long count) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const I cell = ((I(blockIdx.x) * PACKS + k) * THREADS + threadIdx.x) * N;
        live[k] = live_of<N>(cell, count);
        first[k] = live[k] ? cell : 0;
    }
}

// How sums are shared out: 2^slice_bits threads to an owner, `splits` blocks to a sum, each block `per_split` of the
// `units` that an owner sums; 2^fold_bits threads to what the splits are added up to.
struct Cut { long long units, slice_bits, splits, per_split, fold_bits; };

// A thread's place among THREADS: an owner's slices lie side by side in a warp (ROWS), or neighbouring owners do.
template <int THREADS_, bool ROWS> struct Share {
    static constexpr int THREADS = THREADS_;
    static_assert((THREADS & (THREADS - 1)) == 0, "owners and slices are powers of two");
    int slices, owners, slice, owner;
    __device__ explicit Share(long long bits) : slices(1 << int(bits)), owners(THREADS >> int(bits)) {
        const int thread = threadIdx.x, owner_bits = 31 - __clz(owners);
        slice = ROWS ? thread & (slices - 1) : thread >> owner_bits;
        owner = ROWS ? thread >> int(bits) : thread & (owners - 1);
    }
};

template <class I> __device__ I end_of_split(const Cut& cut) {
    const long long beyond = (blockIdx.y + 1) * cut.per_split;
    return I(beyond < cut.units ? beyond : cut.units);
}

// The terms of an owner: runs along the last axis (ROWS) from where its cell lies, or (COLUMNS) its own run, moved.
template <class I, int OPERANDS, Layout LAYOUT, int N, bool ROWS> struct Terms {
    Run<OPERANDS, LAYOUT, N> home[1];  // COLUMNS
    long long base[1][OPERANDS];       // ROWS
    int kept_live;

    __device__ Terms(I first, int live, const Space& kept, const Strides<OPERANDS>& stride) : kept_live(live) {
        const I cell[1] = {live ? first : 0};
        if constexpr (ROWS) locate(base, cell, kept, stride);
        if constexpr (!ROWS) baracuda::place(home, cell, kept, stride);
    }

    // Units from `unit` on, `step` apart: a unit is a pack of terms (ROWS) or one term (COLUMNS).
    template <int GROUP>
    __device__ void place(Run<OPERANDS, LAYOUT, N> (&run)[GROUP], int (&live)[GROUP], I unit, int step, I end,
                          const Space& summed, const Strides<OPERANDS>& stride) const {
        I first[GROUP];
#pragma unroll
        for (int k = 0; k < GROUP; ++k) {
            const I at = unit + I(k) * step;
            live[k] = at >= end ? 0 : ROWS ? live_of<N>(at * N, summed.count) : kept_live;
            first[k] = at >= end ? 0 : ROWS ? at * N : at;
        }
        if constexpr (ROWS) {
            baracuda::place(run, first, summed, stride);
#pragma unroll
            for (int k = 0; k < GROUP; ++k) run[k].move(base[0]);
        } else {
            long long across[GROUP][OPERANDS];
            locate(across, first, summed, stride);
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                run[k] = home[0];
                run[k].move(across[k]);
            }
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

// Add what a thread gathered in one turn, pairwise first. A row has one sum; of columns, each lane has its own.
template <int KEPT, typename A, int STEPS, int N>
__device__ void add_terms(Compensated<A> (&sum)[KEPT], A (&term)[STEPS][N]) {
    static_assert((STEPS & (STEPS - 1)) == 0 && (N & (N - 1)) == 0, "terms pair up");
#pragma unroll
    for (int half = STEPS / 2; half > 0; half /= 2)
#pragma unroll
        for (int s = 0; s < half; ++s)
#pragma unroll
            for (int i = 0; i < N; ++i) term[s][i] += term[s + half][i];
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
    struct alignas(16) Scratch { A of[KEPT][Share::THREADS]; };  // aligned, so that 16-byte reads of one touch no other
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

template <int KEPT, typename A> __device__ void write_parts(A* parts, const A (&sum)[KEPT], int live) {
#pragma unroll
    for (int i = 0; i < KEPT; ++i)
        if (i < live) parts[i] = sum[i];
}

}  // namespace baracuda
