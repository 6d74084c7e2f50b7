// Matrix products of 16-bit types for sm_90a: y = a b, with TMA, wgmma and sums in f32.
//
// block -> tiles of y, one after the other (persistent); a cluster of two has tiles below each other and shares the
// tile of the right operand
// warpgroup 0 -> the producer: its first thread issues TMA loads of both operands, 64 of the depth at a time
// warpgroup 1 ... -> consumers, each of which has its share of the tile's rows in registers
//
// Every sum adds its terms in the order of the depth, 16 to an instruction, whatever the tile: its bits depend on the
// row of a and the column of b alone.
//
// SWAPPED: the rows of a tile are columns of y, for products of few rows. `left` and `right` are the operands of the
// instruction: a and b, or b and a.
//
// Nothing of a or b is read beyond its edges, where TMA gives zeros for both.
#pragma once

#include <baracuda/arch/barrier.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tiles_sm90.cuh>
#include <baracuda/arch/wgmma_sm90.cuh>
#include <baracuda/math.cuh>
#include <baracuda/shared.cuh>

namespace baracuda {

// The layout of shared memory, for a schedule: tiles of BLOCK_M x BLOCK_N, STAGES buffers of both operands, clusters of
// CLUSTER blocks. An operand is in panels of 128 bytes a row: its rows, where the depth is contiguous, else 64 of its
// sides by 64 of the depth. Boxes of the maps: 64 rows of a panel of y, or with SWAPPED all BLOCK_N.
template <class Schedule, class Variant> struct MatmulShape {
    static constexpr bool SWAPPED = Schedule::SWAPPED;
    static constexpr int BLOCK_M = Schedule::BLOCK_M, BLOCK_N = Schedule::BLOCK_N, BLOCK_K = 64;
    static constexpr int CLUSTER = Schedule::CLUSTER;
    static constexpr int CONSUMERS = Schedule::THREADS / 128 - 1, ROWS = BLOCK_M / CONSUMERS, STEPS = ROWS / 64;
    static constexpr bool A_SIDE = Variant::MK || Variant::MN, B_SIDE = Variant::KN || Variant::MN;
    // Whether the sides of an operand are contiguous, not the depth.
    static constexpr bool LEFT_SIDE = SWAPPED ? B_SIDE : A_SIDE, RIGHT_SIDE = SWAPPED ? A_SIDE : B_SIDE;
    static_assert(Schedule::THREADS % 128 == 0 && ROWS % 64 == 0 && ROWS * CONSUMERS == BLOCK_M, "64 rows a product");
    static_assert(BLOCK_N / CLUSTER % 8 == 0 && BLOCK_K / CLUSTER % 8 == 0, "each block of a cluster loads eights of rows");

    __device__ static constexpr unsigned whole(unsigned bytes) { return (bytes + 1023) / 1024 * 1024; }
    static constexpr unsigned PANEL = 64 * 128;  // bytes of one whose sides are contiguous, and of results
    static constexpr unsigned LEFT = BLOCK_M * 128;
    static constexpr unsigned RIGHT = (RIGHT_SIDE ? (BLOCK_N + 63) / 64 * 64 : BLOCK_N) * 128;
    static constexpr unsigned STAGE = LEFT + whole(RIGHT), USUAL_STAGE = LEFT + whole(BLOCK_N * 128);
    static constexpr int STAGES = Schedule::STAGES * USUAL_STAGE / STAGE;  // fewer of narrow tiles in whole panels
    static constexpr unsigned RESULT = SWAPPED ? BLOCK_N * 128 : PANEL, RESULTS = 2;  // of each consumer
    static constexpr unsigned RESULTS_AT = Schedule::STAGES * USUAL_STAGE;
    static constexpr unsigned BARRIERS = RESULTS_AT + CONSUMERS * RESULTS * RESULT, SIZE = BARRIERS + 16 * Schedule::STAGES;

    // Registers per thread after setmaxnreg, in steps of 8.
    static constexpr bool REGISTERS_MOVE = CONSUMERS > 1;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160, PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;
};

template <class Shape> struct MatmulShared {
    unsigned base;

    __device__ __forceinline__ unsigned left(unsigned stage) const { return base + stage * Shape::STAGE; }
    __device__ __forceinline__ unsigned right(unsigned stage) const { return left(stage) + Shape::LEFT; }
    __device__ __forceinline__ unsigned result(unsigned nth) const {
        return base + Shape::RESULTS_AT + nth * Shape::RESULT;
    }
    __device__ __forceinline__ Barrier full(unsigned stage) const { return {base + Shape::BARRIERS + 8 * stage}; }
    __device__ __forceinline__ Barrier empty(unsigned stage) const {
        return {base + Shape::BARRIERS + 8 * (Shape::STAGES + stage)};
    }
    __device__ void init() const {
        for (int i = 0; i < Shape::STAGES; ++i) {
            full(i).init(1);
            empty(i).init(4 * Shape::CONSUMERS * Shape::CLUSTER);
        }
        fence_barrier_init();
    }
};

// The tiles of a cluster: in bands of GROUP tiles of rows, so that what runs at a time reads few rows and few columns,
// which stay in the L2 cache.
template <class Shape> struct MatmulTiles {
    static constexpr int GROUP = 8;
    int rows, columns, each, count, index;  // tiles of a cluster along both sides, of a matrix, of all; the next one
    int row, column, matrix;                // of the current tile of this block

    template <class Args>
    __device__ __forceinline__ explicit MatmulTiles(const Args& args)
        : index(int(blockIdx.x) / Shape::CLUSTER), row(0), column(0), matrix(0) {
        constexpr int ROWS = Shape::BLOCK_M * Shape::CLUSTER;
        const int m = int(Shape::SWAPPED ? args.n : args.m), n = int(Shape::SWAPPED ? args.m : args.n);
        rows = (m + ROWS - 1) / ROWS;
        columns = (n + Shape::BLOCK_N - 1) / Shape::BLOCK_N;
        each = rows * columns;
        count = each * int(args.batch_size);
    }
    // Moves on to the next tile; false after the last.
    __device__ __forceinline__ bool next(unsigned rank) {
        if (index >= count) return false;
        matrix = index / each;
        const int place = index - matrix * each, band = place / (GROUP * columns), first = band * GROUP;
        const int high = min(GROUP, rows - first), within = place - first * columns;
        column = within / high * Shape::BLOCK_N;
        row = ((first + within % high) * Shape::CLUSTER + int(rank)) * Shape::BLOCK_M;
        index += int(gridDim.x) / Shape::CLUSTER;
        return true;
    }
};

// One thread issues all loads.
template <class Shape, class Args>
__device__ __forceinline__ void matmul_produce(const MatmulShared<Shape>& shared, unsigned rank, const Args& args) {
    // Of the rows of the right operand's panels, which blocks of a cluster load for each other.
    constexpr int SHARE = (Shape::RIGHT_SIDE ? Shape::BLOCK_K : Shape::BLOCK_N) / Shape::CLUSTER;
    constexpr unsigned BYTES = Shape::LEFT + Shape::RIGHT;
    constexpr unsigned short ALL = (1 << Shape::CLUSTER) - 1;
    const TensorMap& left_map = Shape::SWAPPED ? args.b_map : args.a_map;
    const TensorMap& right_map = Shape::SWAPPED ? args.a_map : args.b_map;
    const auto load_right = [&](unsigned to, Barrier full, int x, int y, int matrix) {
        if (Shape::CLUSTER > 1) load_tile_to_blocks(to, right_map, full, ALL, x, y, matrix, EVICT_NORMAL);
        else load_tile(to, right_map, full, x, y, matrix, EVICT_NORMAL);
    };
    const int depth = int(args.k);
    Ring<Shape::STAGES> ring;
    for (MatmulTiles<Shape> tile(args); tile.next(rank);) {
        const int matrix_of_a = args.a.stride[0] ? tile.matrix : 0, matrix_of_b = args.b.stride[0] ? tile.matrix : 0;
        const int left_matrix = Shape::SWAPPED ? matrix_of_b : matrix_of_a;
        const int right_matrix = Shape::SWAPPED ? matrix_of_a : matrix_of_b;
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            const Barrier full = shared.full(ring.stage);
            shared.empty(ring.stage).wait(ring.parity ^ 1);
            full.expect(BYTES);
            const unsigned left = shared.left(ring.stage), right = shared.right(ring.stage);
            if (Shape::LEFT_SIDE) {
#pragma unroll
                for (int i = 0; i < Shape::BLOCK_M / 64; ++i)
                    load_tile(left + i * Shape::PANEL, left_map, full, tile.row + 64 * i, k, left_matrix, EVICT_NORMAL);
            } else {
                load_tile(left, left_map, full, k, tile.row, left_matrix, EVICT_NORMAL);
            }
            const int share = int(rank) * SHARE;
            if (Shape::RIGHT_SIDE) {
#pragma unroll
                for (int i = 0; i < (Shape::BLOCK_N + 63) / 64; ++i)
                    load_right(right + share * 128 + i * Shape::PANEL, full, tile.column + 64 * i, k + share,
                               right_matrix);
            } else {
                load_right(right + share * 128, full, k, tile.column + share, right_matrix);
            }
            ring.advance();
        }
    }
}

// What a warpgroup has of a tile becomes y: 64 columns at a time go through shared memory, in two buffers.
template <typename T, class Shape> struct MatmulStore {
    unsigned results;  // the buffers of this warpgroup
    unsigned barrier;  // its named barrier
    unsigned turn = 0;

    template <class Args>
    __device__ __forceinline__ void panel(const float* sum, int row, int column, int matrix, const Args& args) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        const unsigned buffer = results + turn * Shape::RESULT;
        turn ^= 1;
        if (thread == 0) bulk_wait_read<1>();
        bar_sync(barrier, 128);
        constexpr int PIECES = Shape::SWAPPED ? Shape::BLOCK_N / 16 : 4;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const float* const x = sum + 8 * piece;
            const unsigned word[4] = {pack_halves<T>(x[0], x[1]), pack_halves<T>(x[2], x[3]), pack_halves<T>(x[4], x[5]),
                                      pack_halves<T>(x[6], x[7])};
            if (Shape::SWAPPED) {
                // Matrices of 8 rows of y and 8 columns: words 0 and 1 are columns beside each other.
                const unsigned r = 16 * piece + lane % 8 + lane / 16 * 8, chunk = 2 * warp + lane / 8 % 2;
                stmatrix_x4_trans(buffer + r * 128 + ((chunk ^ r % 8) << 4), word);
            } else {
                const unsigned r = 16 * warp + lane % 16, chunk = 2 * piece + lane / 16;
                stmatrix_x4(buffer + r * 128 + ((chunk ^ r % 8) << 4), word);
            }
        }
        fence_proxy_async_shared();
        bar_sync(barrier, 128);
        if (thread == 0) {
            if (Shape::SWAPPED) store_tile(args.y_map, buffer, row, column, matrix);
            else store_tile(args.y_map, buffer, column, row, matrix);
            bulk_commit();
        }
    }
};

template <typename T, class Shape, class Args>
__device__ __forceinline__ void matmul_consume(const MatmulShared<Shape>& shared, int place, unsigned rank,
                                               const Args& args) {
    using Product = Wgmma<T, Shape::BLOCK_N>;
    constexpr int N = Product::REGISTERS;
    constexpr unsigned LEFT_16 = Shape::LEFT_SIDE ? 16 * 128 : 32, RIGHT_16 = Shape::RIGHT_SIDE ? 16 * 128 : 32;
    const int lane = threadIdx.x % 32, rows = int(Shape::SWAPPED ? args.n : args.m);
    const int columns = int(Shape::SWAPPED ? args.m : args.n), depth = int(args.k);
    const Matrix left = Matrix::at(shared.left(0) + place * Shape::ROWS * 128, Shape::PANEL);
    const Matrix right = Matrix::at(shared.right(0), Shape::PANEL);
    MatmulStore<T, Shape> store = {shared.result(place * Shape::RESULTS), unsigned(1 + place)};
    Ring<Shape::STAGES> ring;
    const auto release = [&](unsigned stage) {
        if (lane >= Shape::CLUSTER) return;
        if (Shape::CLUSTER == 1) shared.empty(stage).arrive();
        else arrive_at(shared.empty(stage), unsigned(lane));
    };
    for (MatmulTiles<Shape> tile(args); tile.next(rank);) {
        float sum[Shape::STEPS][N];
        unsigned before = 0;
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            shared.full(ring.stage).wait(ring.parity);
            const Matrix a = left + ring.stage * Shape::STAGE, b = right + ring.stage * Shape::STAGE;
#pragma unroll
            for (int s = 0; s < Shape::STEPS; ++s) fence_operand(sum[s]);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < Shape::BLOCK_K / 16; ++step)
#pragma unroll
                for (int s = 0; s < Shape::STEPS; ++s)
                    Product::template shared<Shape::RIGHT_SIDE, Shape::LEFT_SIDE>(
                        sum[s], a + (s * Shape::PANEL + step * LEFT_16), b + step * RIGHT_16, k == 0 && step == 0);
            wgmma_commit();
            if (k > 0) {
                wgmma_wait<1>();
                release(before);
            }
            before = ring.stage;
            ring.advance();
        }
        wgmma_wait<0>();
        release(before);
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s) {
            fence_operand(sum[s]);
            const int row = tile.row + place * Shape::ROWS + 64 * s;
            if (row >= rows) break;
            if (Shape::SWAPPED) {
                store.panel(sum[s], row, tile.column, tile.matrix, args);
            } else {
#pragma unroll
                for (int c = 0; c < Shape::BLOCK_N; c += 64)
                    if (tile.column + c < columns) store.panel(sum[s] + c / 2, row, tile.column + c, tile.matrix, args);
            }
        }
    }
    if (threadIdx.x % 128 == 0) bulk_wait<0>();
}

template <typename T, class Schedule, class Variant, class Args>
__device__ __forceinline__ void matmul_main(const Args& args) {
    using Shape = MatmulShape<Schedule, Variant>;
    DYN_SHARED(unsigned char, dynamic);
    static_assert(reserves(1024 + Shape::SIZE, 1024), "the launch reserves MatmulShared");
    const unsigned pad = -shared_address(dynamic) & 1023;  // panels start at multiples of 1024
    const MatmulShared<Shape> shared = {shared_address(dynamic) + pad};
    const int warpgroup = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);  // the same register in all lanes
    const unsigned rank = Shape::CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        shared.init();
        prefetch_map(args.a_map);
        prefetch_map(args.b_map);
        prefetch_map(args.y_map);
    }
    if (Shape::CLUSTER > 1) cluster_sync();
    else __syncthreads();
    if (warpgroup == 0) {
        if (Shape::REGISTERS_MOVE) deallocate_registers<Shape::PRODUCER_REGISTERS>();
        if (threadIdx.x == 0) matmul_produce(shared, rank, args);
        __syncwarp();
    } else {
        if (Shape::REGISTERS_MOVE) allocate_registers<Shape::CONSUMER_REGISTERS>();
        matmul_consume<T>(shared, warpgroup - 1, rank, args);
        __syncwarp();
    }
    if (Shape::CLUSTER > 1) cluster_sync();  // nobody leaves while others may still arrive at its barriers
}

}  // namespace baracuda
