// The row family: a problem of rows x cols elements. Each side is an index over up to eight axes of the caller's
// arrays.
#pragma once

#include <baracuda/arch/async.cuh>
#include <baracuda/arch/barrier.cuh>
#include <baracuda/arch/cluster_dims.cuh>
#include <baracuda/arch/cluster_sm90.cuh>
#include <baracuda/arch/barrier_sm90.cuh>
#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/shared.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

constexpr int MAX_AXES = 8;

// Every member of an argument struct is one or more 8-byte words, so the host fills it as an array.
struct Space {
    long long rows, cols;
    double per_col;  // 1 over the number of columns as a float
    long long row_axes, row_extent[MAX_AXES];
    long long col_axes, col_extent[MAX_AXES];
};

// How a row lies in memory.
enum class Layout {
    PACKED,   // contiguous, in aligned 16-byte packs
    DENSE,    // contiguous, with any start and length
    STRIDED,  // one axis of any stride, and any number of columns
    GATHERED  // several axes that do not merge
};

// The offset of an element, in elements; the last axis varies fastest. AXES is the maximum number of axes; one axis
// needs no division.
template <int AXES>
__device__ long long offset(long long index, long long axes, const long long* extent, const long long* stride) {
    if constexpr (AXES == 1) return index * stride[0];
    long long sum = 0;
#pragma unroll 1
    for (int axis = int(axes) - 1; axis > 0; --axis) {
        const long long rest = index / extent[axis];
        sum += (index - rest * extent[axis]) * stride[axis];
        index = rest;
    }
    return sum + index * stride[0];
}

// Not inlined: divisions are long, and callers unroll their loops.
__device__ __noinline__ long long gathered_offset(long long index, const Space& space, const long long* stride) {
    return offset<MAX_AXES>(index, space.col_axes, space.col_extent, stride);
}

template <Layout LAYOUT> __device__ long long column_offset(long long col, const Space& space,
                                                            const long long* stride) {
    if (LAYOUT == Layout::GATHERED) return gathered_offset(col, space, stride);
    return LAYOUT == Layout::STRIDED ? col * stride[0] : col;
}

// A tensor with a value for each element, row or column. Rows lie along at most AXES axes.
template <typename T, int AXES> struct PerElement {
    using element_t = T;
    T* data;
    long long row_stride[MAX_AXES], col_stride[MAX_AXES];
    long long overread_from, overread_to;  // rows whose neighbouring two packs on either side are in the tensor
    __device__ T* row(const Space& space, long long row) const {
        return data + offset<AXES>(row, space.row_axes, space.row_extent, row_stride);
    }
    __device__ bool overreadable(long long row) const { return row >= overread_from && row < overread_to; }
};
template <typename T, int AXES> struct PerRow {
    using element_t = T;
    T* data;
    long long row_stride[MAX_AXES];
    __device__ T& at(const Space& space, long long row) const {
        return data[offset<AXES>(row, space.row_axes, space.row_extent, row_stride)];
    }
};
template <typename T, Layout LAYOUT> struct PerCol {
    using element_t = T;
    T* data;
    long long col_stride[MAX_AXES];
    __device__ T& at(const Space& space, long long col) const {
        return data[column_offset<LAYOUT>(col, space, col_stride)];
    }
};

// LANES threads share a row, a block has ROWS rows, and a thread owns CHUNKS packs of its row at a time. With CLUSTER >
// 1 that many blocks share a row. WIDE: rows are longer than the tile. PERSISTENT: a block loops over rows. A thread
// keeps its last STAGED packs of a packed row in shared memory.
template <int LANES_, int ROWS_, int CHUNKS_, bool WIDE_, int CLUSTER_ = 1, bool PERSISTENT_ = false, int STAGED_ = 0>
struct Tile {
    static constexpr int LANES = LANES_, ROWS = ROWS_, CHUNKS = CHUNKS_, THREADS = LANES * ROWS, CLUSTER = CLUSTER_;
    static constexpr int STAGED = STAGED_;
    static constexpr bool WIDE = WIDE_, PERSISTENT = PERSISTENT_;
    static_assert(CLUSTER == 1 || (LANES > WARP && !WIDE), "a cluster holds one row in whole warps");
    static_assert(LANES <= WARP ? WARP % LANES == 0 : LANES % WARP == 0, "a row is whole warps or a part of one");
    static_assert(LANES <= WARP || ROWS < 16, "a row of several warps has a barrier of its own, and a block has 16");

    // Synchronizes the threads of a row, in a cluster those of this block.
    __device__ static __forceinline__ void row_barrier() {
        if (LANES <= WARP) __syncwarp();
        else if (ROWS == 1) __syncthreads();
        else bar_sync(1 + threadIdx.x / LANES, LANES);
    }
    // Synchronizes all threads of a row, in a cluster those of all its blocks: they read of a row that is updated what
    // another one stores.
    __device__ static __forceinline__ void whole_row_barrier() {
        if constexpr (CLUSTER > 1) cluster_sync();
        else row_barrier();
    }
};

// The tile of a schedule.
template <class S> using TileOf = Tile<S::LANES, S::ROWS, S::CHUNKS, S::WIDE, S::CLUSTER, S::PERSISTENT, S::STAGED>;

// How a block traverses its rows.
enum class Walk {
    REGISTERS,  // the row stays in registers for all passes
    WIDE,       // every pass reads the row again
    REDUCE,     // as WIDE, without the last pass: stores the row reductions that it needs
    STRIP       // the last pass only, on the columns of one tile
};

// Columns fit in 32 bits if a row fits in a tile.
template <bool WIDE> struct ColumnIndex {
    using type = int;
};
template <> struct ColumnIndex<true> {
    using type = long long;
};

// Columns [first, end).
template <typename I> struct ColumnRange {
    I first, end;
    __device__ __forceinline__ static ColumnRange of(long long index, long long size, long long cols) {
        return {I(min(index * size, cols)), I(min((index + 1) * size, cols))};
    }
};

// The columns of a row that a block works on: all, or its share of the cluster's in whole packs.
template <class Tile, int VEC, typename I> __device__ __forceinline__ ColumnRange<I> block_columns(long long cols) {
    if constexpr (Tile::CLUSTER > 1) {
        const long long packs = (cols + VEC - 1) / VEC;
        return ColumnRange<I>::of(cluster_rank(), (packs + Tile::CLUSTER - 1) / Tile::CLUSTER * VEC, cols);
    }
    return {0, I(cols)};
}

// The distance of an address from the aligned pack that contains it, in elements.
template <int N, typename T> __device__ __forceinline__ int misalignment(const T* address) {
    return int(reinterpret_cast<unsigned long long>(address) % alignof(Pack<T, N>) / sizeof(T));
}

// The pack that starts at byte `shift` of two consecutive packs.
template <int BYTES, int WORDS>
__device__ __forceinline__ void funnel_shift(unsigned (&low)[WORDS], const unsigned (&high)[WORDS], int shift) {
    unsigned word[2 * WORDS + 1] = {};
#pragma unroll
    for (int i = 0; i < WORDS; ++i) word[i] = low[i], word[WORDS + i] = high[i];
#pragma unroll
    for (int step = WORDS / 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < WORDS + step; ++i) word[i] = shift & step * 4 ? word[i + step] : word[i];
#pragma unroll
    for (int i = 0; i < WORDS; ++i)
        low[i] = BYTES < 4 ? __funnelshift_r(word[i], word[i + 1], (shift & 3) * 8) : word[i];
}

template <Layout LAYOUT, typename I, typename T, int N>
__device__ void read_scalars(Pack<T, N>& pack, const T* row, const long long* stride, const Space& space, I col, I cols,
                             I from = 0, I used = 0) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (col + i >= from && col + i < cols)
            load_element(pack.lane[i], row + column_offset<LAYOUT>(col + i, space, stride), col + i >= used);
        else if (LAYOUT == Layout::DENSE) pack.lane[i] = {};  // so that registers do not keep old values
}

// The packs that begin at columns `col`, `col + apart`, ... of a row of any alignment. With `overread`, the aligned
// packs around them lie in the tensor: all are loaded at once and shifted into place. Otherwise only packs within the
// row are loaded so, others element by element. Columns before `used` are discarded.
template <typename I, typename T, int N, int COUNT>
__device__ __forceinline__ void read_dense(Pack<T, N> (&pack)[COUNT], const T* row, const Space& space, I col,
                                           I chunk_stride, I cols, bool overread, I used) {
    using Words = PackWords<T, N>;  // a misaligned pack is two of them
    const int skew = misalignment<N>(row + col), shift = skew * int(sizeof(T));
    const auto load = [&](Words& words, const T* address, I at) {
        words.load_part(address, row + max(at, used), row + min(at + N, cols));
    };
    const T* const origin = row + (col - skew);
    Words low[COUNT] = {}, high[COUNT] = {};
    if (overread) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const I at = col + k * chunk_stride;
            if (at < cols) load(low[k], origin + k * chunk_stride, at);
        }
        if (skew) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const I at = col + k * chunk_stride;
                if (at < cols) load(high[k], origin + k * chunk_stride + N, at);
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) funnel_shift<sizeof(T)>(low[k].word, high[k].word, shift);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const I at = col + k * chunk_stride, start = at - skew;
            if (at >= cols) continue;
            if (start >= 0 && start + 2 * N <= I(space.cols)) {
                load(low[k], row + start, at);
                load(high[k], row + start + N, at);
                funnel_shift<sizeof(T)>(low[k].word, high[k].word, shift);
            } else {
                Pack<T, N> scalars;
                read_scalars<Layout::DENSE>(scalars, row, nullptr, space, at, cols, I(0), used);
                low[k].set(scalars);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k) pack[k] = low[k].pack();
}

// How many packs of a dense row are read at once; a misaligned pack takes twice the registers.
template <int COUNT> constexpr int DENSE_AT_ONCE = COUNT > 4 && COUNT % 2 == 0 ? COUNT / 2 : COUNT;

// Columns up to `end`: those before `from` are not read unless dense, those before `used` are discarded.
template <typename I> struct ReadColumns {
    I end, from = 0, used = 0;
};

// Packs of N elements of a row, the first of them at columns `col`, `col + chunk_stride`, ..., as far as there are
// columns; packed ones are contiguous.
template <Layout LAYOUT, typename I, typename T, int N, int COUNT>
__device__ void read(Pack<T, N> (&pack)[COUNT], const T* row, const long long* stride, const Space& space, I col,
                     I chunk_stride, ReadColumns<I> columns, bool overread) {
    const I cols = columns.end;
    if constexpr (LAYOUT == Layout::PACKED) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (col + k * chunk_stride < cols) pack[k].load(row + col + k * chunk_stride);
    } else if constexpr (LAYOUT == Layout::DENSE && sizeof(Pack<T, N>) > 16) {
#pragma unroll
        for (int i = 0; i < N; i += N / 2) {
            Pack<T, N / 2> half[COUNT];
            read<LAYOUT>(half, row, stride, space, col + i, chunk_stride, columns, overread);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
#pragma unroll
                for (int j = 0; j < N / 2; ++j) pack[k].lane[i + j] = half[k].lane[j];
        }
    } else if constexpr (LAYOUT == Layout::DENSE && sizeof(Pack<T, N>) % 4 == 0) {
        constexpr int AT_ONCE = DENSE_AT_ONCE<COUNT>;
#pragma unroll
        for (int k = 0; k < COUNT; k += AT_ONCE)
            read_dense(reinterpret_cast<Pack<T, N>(&)[AT_ONCE]>(pack[k]), row, space, I(col + k * chunk_stride),
                       chunk_stride, cols, overread, max(columns.from, columns.used));
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (col + k * chunk_stride < cols)
                read_scalars<LAYOUT>(pack[k], row, stride, space, col + k * chunk_stride, cols, columns.from,
                                     columns.used);
    }
}
template <Layout LAYOUT, typename I, typename T, int N>
__device__ void read(Pack<T, N>& pack, const T* row, const long long* stride, const Space& space, I col, I cols,
                     bool overread) {
    read<LAYOUT>(reinterpret_cast<Pack<T, N>(&)[1]>(pack), row, stride, space, col, I(0), {cols}, overread);
}

// Columns [from, cols) of a row, as far as they are among the N from column `col` on.
template <Layout LAYOUT, typename I, typename T, int N>
__device__ void write(const Pack<T, N>& pack, T* row, const long long* stride, const Space& space, I col, I from,
                      I cols) {
    if (LAYOUT == Layout::PACKED ||
        (LAYOUT == Layout::DENSE && col >= from && col + N <= cols && misalignment<N>(row + col) == 0)) {
        pack.store(row + col);  // the caller has checked that there is a column
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (col + i >= from && col + i < cols) row[column_offset<LAYOUT>(col + i, space, stride)] = pack.lane[i];
    }
}

// Prefetches a thread's packs of one tensor into shared memory by cp.async. Pack k of all THREADS threads is
// contiguous, and a thread accesses its own packs only. The constructor advances `shared` past the tensor's packs.
template <typename T, int N, int CHUNKS, int THREADS> struct Prefetch {
    static constexpr unsigned SHARED_BYTES = CHUNKS * THREADS * sizeof(Pack<T, N>);
    Pack<T, N>* own;
    __device__ __forceinline__ explicit Prefetch(unsigned char*& shared)
        : own(reinterpret_cast<Pack<T, N>*>(shared) + threadIdx.x) {
        shared += SHARED_BYTES;
    }
    __device__ __forceinline__ void fetch(int k, const T* from) const {
        constexpr int BYTES = sizeof(Pack<T, N>);
        unsigned char* const to = reinterpret_cast<unsigned char*>(own + k * THREADS);
        const unsigned char* const source = reinterpret_cast<const unsigned char*>(from);
        if constexpr (BYTES % 16 == 0) {
#pragma unroll
            for (int i = 0; i < BYTES; i += 16) cp_async_cg(to + i, source + i);
        } else if constexpr (BYTES >= 4) {
            cp_async_ca<BYTES>(to, source);
        } else {
            own[k * THREADS].load(from);
        }
    }
    __device__ __forceinline__ void read(int k, Pack<T, N>& pack) const { pack = own[k * THREADS]; }
};

// The mean of a row from its sum. Multiplying in double rounds to float as a division does; a division would take
// longer to compile than the rest of a short kernel.
template <typename A> __device__ A mean_of(A sum, const Space& space) {
    if constexpr (sizeof(A) == 4) return A(double(sum) * space.per_col);
    return sum / A(space.cols);
}

// How values of a row are reduced, and what number `i` of those is `of` a row. TOP is the number of the largest among
// those that are reduced together, below which this one's terms are; -1 of what rests on no other.
struct OnItsOwn {
    static constexpr int TOP = -1;
    template <typename A, int N> __device__ static A rescaled(A value, const A (&)[N], const A (&)[N]) { return value; }
};
template <typename A> struct Sum : OnItsOwn {
    __device__ A operator()(A a, A b) const { return a + b; }
    template <int N> __device__ static A of(const A (&value)[N], int i, const Space&) { return value[i]; }
};
template <typename A> struct Mean : Sum<A> {
    template <int N> __device__ static A of(const A (&value)[N], int i, const Space& space) {
        return mean_of(value[i], space);
    }
};
template <typename A> struct Max : OnItsOwn {
    __device__ A operator()(A a, A b) const { return math::maximum(a, b); }
    template <int N> __device__ static A of(const A (&value)[N], int i, const Space&) { return value[i]; }
};
template <typename A> struct Min : OnItsOwn {
    __device__ A operator()(A a, A b) const { return math::minimum(a, b); }
    template <int N> __device__ static A of(const A (&value)[N], int i, const Space&) { return value[i]; }
};

// All-gather of one value per block of a cluster through distributed shared memory. The two barriers and buffers
// alternate: a block that has received all values of one phase knows that nobody reads those of the phase before.
template <class Tile> struct ClusterExchange {
    __device__ static Barrier arrived(int phase) {
        __shared__ unsigned long long barriers[2];
        return {shared_address(&barriers[phase & 1])};
    }
    // Initializes the barriers of this block. The first exchange waits until all blocks have.
    __device__ static void init() {
        if (threadIdx.x == 0) {
            arrived(0).init(1);
            arrived(1).init(1);
            fence_barrier_init();
        }
        cluster_arrive();
    }
    __device__ static void wait_for_init(int phase) {
        if (phase == 0) cluster_wait();
    }
    // The numbers of all blocks, in the blocks' order.
    template <typename A, int N> __device__ static const A (*all_gather(const A (&value)[N], int phase))[N] {
        __shared__ A of_block[2][Tile::CLUSTER][N];
        wait_for_init(phase);
        const Barrier barrier = arrived(phase);
        if (threadIdx.x == 0) barrier.expect(Tile::CLUSTER * sizeof(value));
        if (threadIdx.x < Tile::CLUSTER) {
#pragma unroll
            for (int i = 0; i < N; ++i)
                store_async(&of_block[phase & 1][cluster_rank()][i], threadIdx.x, value[i], barrier);
        }
        barrier.wait_cluster(phase >> 1 & 1);
        return of_block[phase & 1];
    }
};

// Joins each of N numbers with its other by an operation of its own.
template <class... Ops, typename A, int N> __device__ void join(A (&value)[N], const A (&other)[N]) {
    static_assert(sizeof...(Ops) == N, "an operation for each number");
    int i = 0;
    ((value[i] = Ops()(value[i], other[i]), ++i), ...);
}
template <class... Ops> constexpr bool ANY_BELOW = (false || ... || (Ops::TOP >= 0));

// A butterfly over LANES neighbouring lanes: what rests on no other, then sums below the largest of all these lanes.
template <int LANES, class... Ops, typename A, int N> __device__ void reduce_lanes(A (&value)[N]) {
    constexpr int TOP[] = {Ops::TOP...};
    A own[N];
#pragma unroll
    for (int i = 0; i < N; ++i) own[i] = value[i];
#pragma unroll
    for (int below = 0; below <= int(ANY_BELOW<Ops...>); ++below) {
        if (below) {
            int i = 0;
            ((value[i] = Ops::rescaled(value[i], own, value), ++i), ...);
        }
#pragma unroll
        for (int step = (LANES < WARP ? LANES : WARP) / 2; step > 0; step /= 2) {
            A other[N];
#pragma unroll
            for (int i = 0; i < N; ++i)
                if ((TOP[i] >= 0) == (below > 0)) other[i] = __shfl_xor_sync(ALL_LANES, value[i], step);
            int i = 0;
            (((Ops::TOP >= 0) == (below > 0) ? void(value[i] = Ops()(value[i], other[i])) : void(), ++i), ...);
        }
    }
}

// Reduces what each of COUNT warps or blocks has.
template <int COUNT, class... Ops, typename A, int N>
__device__ void reduce_parts_of_row(A (&value)[N], const A (*part)[N]) {
    if constexpr (ANY_BELOW<Ops...>) {
        static_assert(COUNT <= WARP && WARP % COUNT == 0, "each lane takes one part");
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] = part[threadIdx.x % COUNT][i];
        reduce_lanes<COUNT, Ops...>(value);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) value[i] = part[0][i];
#pragma unroll
        for (int other = 1; other < COUNT; ++other) join<Ops...>(value, part[other]);
    }
}

// All-reduce of N numbers over the threads of a row, with the same bits in each: a butterfly within the warp, then the
// warps in order, then the blocks of the cluster; butterflies throughout with sums below a largest number. `phase`
// counts the reductions: two scratch buffers alternate, so that one barrier each is enough.
template <class Tile, class... Ops, typename A, int N> __device__ void reduce_row(A (&value)[N], int& phase) {
    reduce_lanes<Tile::LANES, Ops...>(value);
    if constexpr (Tile::LANES <= WARP) {
        __syncwarp();  // a row may be written in place: what other lanes read of it comes before
    } else {
        constexpr int WARPS = (Tile::LANES + WARP - 1) / WARP;
        // Aligned, so that 16-byte reads of one touch no other.
        struct alignas(16) Scratch {
            A of_warp[WARPS][N];
        };
        __shared__ Scratch scratch[Tile::ROWS][2];
        A(&of_warp)[WARPS][N] = scratch[threadIdx.x / Tile::LANES][phase & 1].of_warp;
        if (threadIdx.x % WARP == 0) {
#pragma unroll
            for (int i = 0; i < N; ++i) of_warp[threadIdx.x % Tile::LANES / WARP][i] = value[i];
        }
        Tile::row_barrier();
        reduce_parts_of_row<WARPS, Ops...>(value, of_warp);
    }
    if constexpr (Tile::CLUSTER > 1)
        reduce_parts_of_row<Tile::CLUSTER, Ops...>(value, ClusterExchange<Tile>::all_gather(value, phase));
    ++phase;
}
template <class Tile, class Op, typename A> __device__ A reduce_row(A value, int& phase) {
    A of_row[1] = {value};
    reduce_row<Tile, Op>(of_row, phase);
    return of_row[0];
}

// Adds the column sums of all rows of a block, within a warp by a butterfly, then in order, and passes each sum to
// `put` with its column: N neighbouring columns for each of LANES threads.
template <class Tile, typename A, int N, typename Put> __device__ void reduce_rows(A (&sum)[N], Put put) {
    const int lane = threadIdx.x % Tile::LANES;
    if constexpr (Tile::ROWS == 1) {
#pragma unroll
        for (int i = 0; i < N; ++i) put(lane * N + i, sum[i]);
    } else {
        constexpr int SHARERS = Tile::LANES < WARP ? WARP : Tile::LANES, GROUPS = Tile::THREADS / SHARERS;
        __shared__ A of_group[GROUPS][Tile::LANES * N];
        __syncthreads();  // an earlier reduction may still be reading
#pragma unroll
        for (int i = 0; i < N; ++i) {
#pragma unroll
            for (int step = Tile::LANES; step < WARP; step *= 2) sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], step);
            if (threadIdx.x % SHARERS < Tile::LANES) of_group[threadIdx.x / SHARERS][lane * N + i] = sum[i];
        }
        __syncthreads();
        for (int place = threadIdx.x; place < Tile::LANES * N; place += Tile::THREADS) {
            A all = of_group[0][place];
#pragma unroll
            for (int group = 1; group < GROUPS; ++group) all += of_group[group][place];
            put(place, all);
        }
    }
}

// Makes the compiler convert the elements of the first COUNT packs again in the next pass instead of keeping the
// converted ones: 16-bit elements then take half the registers. Floats need no conversion.
template <int COUNT, typename T, int N, int CHUNKS>
__device__ __forceinline__ void keep_packed(Pack<T, N> (&slice)[CHUNKS]) {
#ifndef BARACUDA_HOST
    if constexpr (sizeof(T) != 4 && sizeof(Pack<T, N>) % 4 == 0) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
#pragma unroll
            for (int i = 0; i < int(sizeof(Pack<T, N>) / 4); ++i)
                asm volatile("" : "+r"(reinterpret_cast<unsigned*>(&slice[k])[i]));
    }
#endif
}

constexpr int REDUCE_SLICES = 16;  // number of slices in which a block adds partial sums

// The sums of `parts` numbers `pitch` apart, for THREADS / SLICES columns at once: slice s adds parts s, s + SLICES,
// ..., then slice 0 adds the slices in order. Only slice 0, the first threads of the block, gets the sum.
template <int THREADS, int SLICES, typename A> __device__ A reduce_parts(const A* part, long long parts,
                                                                         long long pitch, bool inside) {
    constexpr int COLUMNS = THREADS / SLICES;
    const int slice = threadIdx.x / COLUMNS, column = threadIdx.x % COLUMNS;
    A sum = 0;
    if (inside) {
#pragma unroll 8
        for (long long p = slice; p < parts; p += SLICES) sum += part[p * pitch];
    }
    if constexpr (SLICES > 1) {
        __shared__ A of_slice[SLICES][COLUMNS];
        __syncthreads();  // an earlier reduction may still be reading
        of_slice[slice][column] = sum;
        __syncthreads();
        sum = of_slice[0][column];
#pragma unroll
        for (int s = 1; s < SLICES; ++s) sum += of_slice[s][column];
    }
    return sum;
}

// Whether this block is the last of `blocks` to get here. If so, all writes of the others are visible to it.
__device__ inline bool is_last_block(unsigned* ticket, unsigned blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {  // between barriers, so these fences hold for the whole block
        __threadfence();
        last = atomicAdd(ticket, 1u) + 1 == blocks;
        __threadfence();
    }
    __syncthreads();
    return last;
}

}  // namespace baracuda
