// Products of matrices of any strides, type by type in the accumulator's own arithmetic: tiles go through shared
// memory, sums stay in registers, and each sum adds its terms in the order of the depth, so that its bits depend on
// nothing else.
#pragma once

#include <baracuda/math.cuh>
#include <baracuda/pack.cuh>
#include <baracuda/strided.cuh>

namespace baracuda {

// Which axis of an operand is expected to be contiguous: the depth (K) or the side (MN). Other strides are correct, but
// slow.
enum class Major { K, MN };

// A factor of a product as element (side, depth): the side is the product's row for the left factor, its column for
// the right.
template <typename T, Major MAJOR> struct Operand {
    const T* data;
    long long side_stride, depth_stride;
};

// One matrix of a [batch, heads, rows, columns] tensor whose columns are summed over, or whose rows are.
template <typename T>
__device__ Operand<T, Major::K> over_columns(const Strided<const T, 4>& x, long long batch, long long head) {
    return {x.at(batch, head), x.stride[2], x.stride[3]};
}
template <typename T>
__device__ Operand<T, Major::MN> over_rows(const Strided<const T, 4>& x, long long batch, long long head) {
    return {x.at(batch, head), x.stride[3], x.stride[2]};
}

// A dense tensor, as arrays of the workspace are.
template <typename T> __device__ Strided<T, 4> dense(T* data, long long heads, long long rows, long long columns) {
    return {data, {heads * rows * columns, rows * columns, columns, 1}};
}

// The part of one matrix of a [batch, heads, rows, columns] result that a block works on begins at (row, column).
struct Part {
    long long batch, head, row, column, rows, columns;
};

// C += left * right for a part of C of SIDE x SIDE elements, by THREADS threads. Thread -> ROWS neighbouring rows of
// 16 threads' columns, of which it owns a pack in every 16 packs: the packs that a warp reads together then lie in
// different banks.
template <typename A, int THREADS> struct Product {
    static constexpr int SIDE = 64, DEPTH = 16, ACROSS = 16;
    static constexpr int PACK = 16 / int(sizeof(A)), PITCH = SIDE + PACK;  // the padding keeps packs aligned
    static constexpr int ROWS = SIDE / (THREADS / ACROSS), COLUMNS = SIDE / ACROSS;
    static_assert(THREADS % SIDE == 0 && ROWS % PACK == 0 && COLUMNS % PACK == 0, "threads share a part in packs");

    A sum[ROWS][COLUMNS];
    int buffer = 0;  // the next of two buffers: double buffering needs one barrier a step

    __device__ void clear() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) sum[r][c] = A(0);
    }

    // All threads of the block call it, with the same arguments. The next step's elements are prefetched while a step
    // is computed.
    template <typename L, Major LEFT, typename R, Major RIGHT>
    __device__ void add(const Operand<L, LEFT>& left, const Operand<R, RIGHT>& right, const Part& part,
                        long long depth) {
        Panels* const panels = shared_panels();
        Staging<L, LEFT> of_left(left, part.row, part.rows);
        Staging<R, RIGHT> of_right(right, part.column, part.columns);
        if (depth > 0) {
            of_left.load(depth);
            of_right.load(depth);
        }
        for (long long done = 0; done < depth; done += DEPTH) {
            Panels& now = panels[buffer];
            buffer ^= 1;
            of_left.store(now.left);
            of_right.store(now.right);
            __syncthreads();  // this step's panels are stored; the other buffer is free
            if (done + DEPTH < depth) {
                of_left.load(depth - done - DEPTH);
                of_right.load(depth - done - DEPTH);
            }
            step(now);
        }
    }

    // store(row, column, sum) for each element that the thread owns of the part.
    template <class Store> __device__ void each(const Part& part, Store store) const {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const long long row = part.row + first_row() + r;
            if (row >= part.rows) break;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const long long column = part.column + column_of(c);
                if (column < part.columns) store(row, column, sum[r][c]);
            }
        }
    }

    // body(part) for every part of a result that falls to this block: a grid of any size will do.
    template <class Body>
    __device__ static void for_each_part(long long batch, long long heads, long long rows, long long columns,
                                         Body body) {
        const long long down = (rows + SIDE - 1) / SIDE, across = (columns + SIDE - 1) / SIDE;
        const long long parts = batch * heads * down * across;
        for (long long index = blockIdx.x; index < parts; index += gridDim.x) {
            const long long strip = index / across, matrix = strip / down;
            body(Part{matrix / heads, matrix % heads, strip % down * SIDE, index % across * SIDE, rows, columns});
        }
    }

private:
    struct alignas(16) Panels {
        A left[DEPTH][PITCH], right[DEPTH][PITCH];
    };

    // All products of a kernel share this memory.
    __device__ static Panels* shared_panels() {
        __shared__ Panels panels[2];
        return panels;
    }

    // A thread's elements of an operand's panel, on the way from global to shared memory: a fixed step apart, zero
    // beyond the operand's edges.
    template <typename T, Major MAJOR> struct Staging {
        static constexpr int COUNT = SIDE * DEPTH / THREADS;
        static constexpr int SIDE_STEP = MAJOR == Major::K ? THREADS / DEPTH : 0;
        static constexpr int DEPTH_STEP = MAJOR == Major::K ? 0 : THREADS / SIDE;

        const T* next;
        long long jump, advance;  // from one of the thread's elements to the next, from one panel to the next
        int side, depth, sides;
        T staged[COUNT];

        __device__ Staging(const Operand<T, MAJOR>& from, long long first, long long size) {
            side = MAJOR == Major::K ? threadIdx.x / DEPTH : threadIdx.x % SIDE;
            depth = MAJOR == Major::K ? threadIdx.x % DEPTH : threadIdx.x / SIDE;
            sides = int(min((long long)SIDE, size - first));
            next = from.data + (first + side) * from.side_stride + depth * from.depth_stride;
            jump = SIDE_STEP * from.side_stride + DEPTH_STEP * from.depth_stride;
            advance = DEPTH * from.depth_stride;
        }
        // `left` is what remains of the depth.
        __device__ void load(long long left) {
            const int depths = int(min((long long)DEPTH, left));
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                staged[i] = side + i * SIDE_STEP < sides && depth + i * DEPTH_STEP < depths ? next[i * jump] : T(0.0f);
            next += advance;
        }
        __device__ void store(A (*panel)[PITCH]) const {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) panel[depth + i * DEPTH_STEP][side + i * SIDE_STEP] = A(staged[i]);
        }
    };

    __device__ static int first_row() { return threadIdx.x / ACROSS * ROWS; }
    __device__ static int column_of(int c) { return (c / PACK * ACROSS + threadIdx.x % ACROSS) * PACK + c % PACK; }

    __device__ void step(const Panels& panels) {
        using Four = Pack<A, PACK>;
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            Four left[ROWS / PACK], right[COLUMNS / PACK];
#pragma unroll
            for (int p = 0; p < ROWS / PACK; ++p) left[p].load(&panels.left[k][first_row() + p * PACK]);
#pragma unroll
            for (int p = 0; p < COLUMNS / PACK; ++p) right[p].load(&panels.right[k][column_of(p * PACK)]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] = math::fma(left[r / PACK].lane[r % PACK], right[c / PACK].lane[c % PACK], sum[r][c]);
        }
    }
};

}  // namespace baracuda
