// Matrix products by mma.sync: y = a b, for halves, float (as three tf32 products) and double alike, from sm_80 on.
//
// block -> tiles of y, one after the other; warp -> a part of the tile, in registers
//
// Operands go through shared memory in a ring of STAGES buffers of BLOCK_K of the depth; cp.async fills them, or where
// arrays are strided, the threads. Every sum adds its terms in the order of the depth, whatever the tile.
#pragma once

#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>
#include <baracuda/strided.cuh>

namespace baracuda {

// An operand of a product as [sides, depth]: rows of a, columns of b. SIDE: sides are contiguous, not the depth.
template <typename T, bool SIDE, int SIDES, int DEPTH> struct MatmulOperand {
    using Tile = SharedTile<T, SIDE ? DEPTH : SIDES, SIDE ? SIDES : DEPTH>;
    static constexpr int SIZE = SIDES * DEPTH;
    const T* data;
    long long side_stride, depth_stride, sides, depth;

    // What begins at (side, at) of the operand, zeros beyond its edges.
    template <int THREADS, bool PACKED> __device__ __forceinline__ void copy(T* to, long long side, long long at) const {
        const T* const from = data + side * side_stride + at * depth_stride;
        const Tile tile = {to};
        if constexpr (PACKED) {
            if (SIDE) copy_rows<THREADS, true>(tile, from, depth_stride, depth - at, sides - side);
            else copy_rows<THREADS, true>(tile, from, side_stride, sides - side, depth - at);
        } else {
            for (int i = threadIdx.x; i < SIZE; i += THREADS) {
                const int s = SIDE ? i % SIDES : i / DEPTH, d = SIDE ? i / SIDES : i % DEPTH;
                const bool inside = s < sides - side && d < depth - at;
                *(SIDE ? tile.at(d, s) : tile.at(s, d)) = inside ? from[s * side_stride + d * depth_stride] : T(0.0f);
            }
        }
    }
};

template <typename T, class Schedule, class Variant> struct MatmulTile {
    static constexpr int BLOCK_M = Schedule::BLOCK_M, BLOCK_N = Schedule::BLOCK_N, BLOCK_K = Schedule::BLOCK_K;
    static constexpr int STAGES = Schedule::STAGES, THREADS = Schedule::THREADS, ACROSS = Schedule::ACROSS;
    static constexpr bool A_SIDE = Variant::MK || Variant::MN, B_SIDE = Variant::KN || Variant::MN;
    static constexpr bool PACKED = !Variant::STRIDED;
    using Multiply = typename MmaFor<T, !A_SIDE>::type;
    using A = MatmulOperand<T, A_SIDE, BLOCK_M, BLOCK_K>;
    using B = MatmulOperand<T, B_SIDE, BLOCK_N, BLOCK_K>;
    static constexpr int ROWS = BLOCK_M / (THREADS / 32 / ACROSS), COLUMNS = BLOCK_N / ACROSS;  // of a warp
    static constexpr int TALL = ROWS / Multiply::ROWS, WIDE = COLUMNS / 16;
    static_assert(ROWS % Multiply::ROWS == 0 && COLUMNS % 16 == 0 && BLOCK_K % Multiply::DEPTH == 0, "whole products");
    static constexpr int STAGE = A::SIZE + B::SIZE;

    T* shared;
    typename Multiply::Sum sum[TALL][2 * WIDE];

    __device__ __forceinline__ void load(const A& a, const B& b, long long row, long long column, int block) {
        T* const to = shared + block % STAGES * STAGE;
        a.template copy<THREADS, PACKED>(to, row, (long long)block * BLOCK_K);
        b.template copy<THREADS, PACKED>(to + A::SIZE, column, (long long)block * BLOCK_K);
    }
    __device__ __forceinline__ void multiply(int block, int first_row, int first_column) {
        const typename A::Tile a = {shared + block % STAGES * STAGE};
        const typename B::Tile b = {a.data + A::SIZE};
        const int lane = opaque(threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += Multiply::DEPTH) {
            typename Multiply::Left left[TALL];
#pragma unroll
            for (int i = 0; i < TALL; ++i) {
                const int m = first_row + i * Multiply::ROWS;
                if constexpr (A_SIDE) left[i] = Multiply::left_transposed(a, m, k, lane);
                else left[i] = Multiply::left(a, m, k, lane);
            }
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const int n = first_column + 16 * j;
                typename Multiply::Right right;
                if constexpr (B_SIDE) right = Multiply::right(b, k, n, lane);
                else right = Multiply::right_transposed(b, k, n, lane);
#pragma unroll
                for (int i = 0; i < TALL; ++i) Multiply::multiply(sum[i] + 2 * j, left[i], right);
            }
        }
    }

    // All terms of a tile. The barrier of a step says that its buffer is full, and that of the step before free.
    __device__ __forceinline__ void add(const A& a, const B& b, long long row, long long column, int first_row,
                                        int first_column) {
        const int blocks = int((a.depth + BLOCK_K - 1) / BLOCK_K);
#pragma unroll
        for (int i = 0; i < TALL; ++i)
#pragma unroll
            for (int j = 0; j < 2 * WIDE; ++j) sum[i][j] = {};
        for (int block = 0; block < STAGES - 1; ++block) {
            if (block < blocks) load(a, b, row, column, block);
            cp_async_commit_group();
        }
#pragma unroll 1
        for (int block = 0; block < blocks; ++block) {
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            if (block + STAGES - 1 < blocks) load(a, b, row, column, block + STAGES - 1);
            cp_async_commit_group();
            multiply(block, first_row, first_column);
        }
        __syncthreads();  // the next tile overwrites all buffers
    }

    __device__ __forceinline__ void store(const Strided<T, 3>& y, long long matrix, long long row, long long column,
                                          long long rows, long long columns) const {
#pragma unroll
        for (int i = 0; i < TALL; ++i)
#pragma unroll
            for (int j = 0; j < 2 * WIDE; ++j)
#pragma unroll
                for (int v = 0; v < Multiply::VALUES; v += 2) {
                    const long long r = row + i * Multiply::ROWS + Multiply::row(v), c = column + 8 * j + Multiply::col(v);
                    if (r >= rows || c >= columns) continue;
                    T* const to = y.at(matrix, r, c);
                    Pack<T, 2> two;
                    two.lane[0] = T(sum[i][j].value[v]), two.lane[1] = T(sum[i][j].value[v + 1]);
                    if constexpr (PACKED) two.store(to);
                    else {
                        *to = two.lane[0];
                        if (c + 1 < columns) to[y.stride[2]] = two.lane[1];
                    }
                }
    }
};

template <typename T, class Schedule, class Variant, class Args>
__device__ __forceinline__ void matmul_main(const Args& args) {
    using Tile = MatmulTile<T, Schedule, Variant>;
    DYN_SHARED(T, shared);
    static_assert(reserves(Tile::STAGES * Tile::STAGE * sizeof(T)), "the launch reserves all buffers");
    constexpr int GROUP = 8;  // tiles of rows that are worked on together, to share columns in the L2 cache
    const long long rows = (args.m + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
    const long long columns = (args.n + Tile::BLOCK_N - 1) / Tile::BLOCK_N, each = rows * columns;
    const int warp = threadIdx.x / 32, warp_row = warp / Tile::ACROSS * Tile::ROWS;
    const int warp_column = warp % Tile::ACROSS * Tile::COLUMNS;
    Tile tile = {shared};
    for (long long index = blockIdx.x; index < each * args.batch_size; index += gridDim.x) {
        const long long matrix = index / each, place = index - matrix * each, band = place / (GROUP * columns);
        const long long high = min((long long)GROUP, rows - band * GROUP), within = place - band * GROUP * columns;
        const long long row = (band * GROUP + within % high) * Tile::BLOCK_M, column = within / high * Tile::BLOCK_N;
        const typename Tile::A a = {args.a.at(matrix), args.a.stride[1], args.a.stride[2], args.m, args.k};
        const typename Tile::B b = {args.b.at(matrix), args.b.stride[2], args.b.stride[1], args.n, args.k};
        tile.add(a, b, row, column, warp_row, warp_column);
        tile.store(args.y, matrix, row + warp_row, column + warp_column, args.m, args.n);
    }
}

}  // namespace baracuda
