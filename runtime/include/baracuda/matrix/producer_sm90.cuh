// The producer's warpgroup: loads both factors into the buffers of shared memory, with TMA or by copying (see
// product_sm90.cuh).
#pragma once

#include <baracuda/arch/tiles_sm90.cuh>
#include <baracuda/matrix/tile_scheduler_sm90.cuh>

namespace baracuda {

#if BARACUDA_TMA
// Calls load(to, x, y) for a factor's panels of a stage, or its only one: PANELS of 64 sides, where SIDE.
template <bool SIDE, int PANELS, class Load>
__device__ __forceinline__ void each_panel(unsigned to, int side, int k, const Load& load) {
    if (!SIDE) return load(to, k, side);
#pragma unroll
    for (int i = 0; i < PANELS; ++i) load(to + i * ProductShape::PANEL, side + 64 * i, k);
}

// The loads of a tile by a block.
template <class Program> struct TileLoads {
    using Shape = ProductShape;
    using Of = Factors<Program>;
    using Args = typename Program::Args;
    // Of the rows of a panel: what a block of a cluster loads for the others, or at a time.
    static constexpr int A_PART = (Shape::A_SIDE ? Shape::BLOCK_K : Shape::BLOCK_M) / (Shape::TURNS ? 2 : 1);
    static constexpr int B_PART = (Shape::B_SIDE ? Shape::BLOCK_K : Shape::BLOCK_N) / Shape::CLUSTER;
    static constexpr int A_PANELS = Shape::BLOCK_M / 64, B_PANELS = (Shape::WIDE + 63) / 64;
    static_assert(PRODUCTS == 1 || Shape::CLUSTER <= (Shape::SWAPPED ? 1 : 2), "each block loads one right factor");

    const Args& args;
    unsigned rank;
    int row, column, matrix;
    bool share_a, share_b;

    // The matrix of an operand.
    __device__ __forceinline__ int matrix_of(int operand) const { return args.stride[operand][0] != 0 ? matrix : 0; }
    // To all blocks or to this one.
    __device__ __forceinline__ static void load(const TensorMap& map, bool to_all, unsigned to, Barrier full, int x,
                                                int y, int of) {
        constexpr unsigned short ALL = (1 << Shape::CLUSTER) - 1;
        if (to_all) load_tile_to_blocks(to, map, full, ALL, x, y, of, EVICT_NORMAL);
        else load_tile(to, map, full, x, y, of, EVICT_NORMAL);
    }
    __device__ __forceinline__ void a(unsigned to, Barrier full, int k) const {
        const TensorMap& map = Shape::SWAPPED ? args.right_map : args.left_map;
        const int of = matrix_of(Shape::SWAPPED ? Of::Right::OPERAND : Of::Left::OPERAND);
        each_panel<Shape::A_SIDE, A_PANELS>(to, row, k, [&](unsigned at, int x, int y) {
            const int own = share_a ? int(rank) * A_PART : 0;
            load(map, share_a, at + own * 128, full, x, y + own, of);
            if (Shape::TURNS && !share_a) load(map, false, at + A_PART * 128, full, x, y + A_PART, of);
        });
    }
    __device__ __forceinline__ void b(unsigned to, Barrier full, int k) const {
        const TensorMap& map = Shape::SWAPPED ? args.left_map : args.right_map;
        const int of = matrix_of(Shape::SWAPPED ? Of::Left::OPERAND : Of::Right::OPERAND);
        if (Shape::OF_B > 1 && share_b && rank != 0) return;
        each_panel<Shape::B_SIDE, B_PANELS>(to, column, k, [&](unsigned at, int x, int y) {
            const int own = Shape::OF_B == 1 && share_b ? int(rank) * B_PART : 0;
            load(map, share_b, at + own * 128, full, x, y + own, of);
            if (Shape::OF_B == 1 && Shape::CLUSTER > 1 && !share_b)
                load(map, false, at + B_PART * 128, full, x, y + B_PART, of);
        });
    }
    // The other right factor, behind the first one.
    __device__ __forceinline__ void second([[maybe_unused]] unsigned of_a, [[maybe_unused]] unsigned of_b,
                                           [[maybe_unused]] Barrier full, [[maybe_unused]] int k) const {
#ifdef BARACUDA_SECOND
        const int of = matrix_of(Of::Second::OPERAND);
        const auto load_second = [&](unsigned to, int x, int y) {
            load(args.second_map, Shape::OF_B > 1 && share_b, to, full, x, y, of);
        };
        if (Shape::OF_A > 1) each_panel<Shape::A_SIDE, A_PANELS>(of_a + Shape::BLOCK_M * 128, row, k, load_second);
        else if (!share_b || rank == 1)
            each_panel<Shape::B_SIDE, B_PANELS>(of_b + Shape::WIDE * 128, column, k, load_second);
#endif
    }
};

// One thread issues all loads.
template <class Program>
__device__ __forceinline__ void produce(const ProductShared& shared, unsigned rank,
                                        const typename Program::Args& args) {
    using Shape = ProductShape;
    Ring<Shape::STAGES> ring;
    for (ProductTiles<Program, false> tile(args); tile.next(rank);) {
        const bool share_a = Shape::TURNS && tile.beside;
        const int matrix = tile.span.of_factors(tile.matrix, args);
        const TileLoads<Program> loads = {
            args, rank, tile.row, tile.column, matrix, share_a, Shape::CLUSTER > 1 && !share_a};
        const int from = tile.first_term(), depth = from + tile.terms();
#pragma unroll 1
        for (int k = from; k < depth; k += Shape::BLOCK_K) {
            const Barrier full = shared.full(ring.stage);
            shared.empty(ring.stage).wait(ring.parity ^ 1);
            full.expect(Shape::A + Shape::B);
            const unsigned a = shared.a(ring.stage), b = shared.b(ring.stage);
            loads.a(a, full, k);
            loads.b(b, full, k);
            loads.second(a, b, full, k);
            ring.advance();
        }
    }
}
#else
// ROWS rows of a panel, as TMA lays them out: what begins at `from`, zeros beyond `sides` and `depth`.
template <int ROWS, typename T>
__device__ __forceinline__ void copy_panel(unsigned char* to, const T* from, long long side_stride,
                                           long long depth_stride, long long sides, long long depth) {
    constexpr int ACROSS = ProductShape::BLOCK_K, CHUNK = 16 / int(sizeof(T));
    for (int i = threadIdx.x; i < ROWS * ACROSS; i += 128) {
        const int row = i / ACROSS, column = i % ACROSS;
        const bool inside = row < sides && column < depth;
        T* const chunk = reinterpret_cast<T*>(to + row * 128 + ((column / CHUNK ^ row % 8) << 4));
        chunk[column % CHUNK] = inside ? from[row * side_stride + column * depth_stride] : T{};
    }
}

// All threads of the warpgroup copy. `memory` is where `shared` begins.
template <class Program>
__device__ __forceinline__ void produce(const ProductShared& shared, unsigned char* memory,
                                        const typename Program::Args& args) {
    static_assert(SPAN != Span::DEPTH && PRODUCTS == 1, "TMA moves parts of the depth and pairs, or another kernel");
    using Shape = ProductShape;
    using Of = Factors<Program>;
    const long long *const of_left = args.stride[Of::Left::OPERAND], *const of_right = args.stride[Of::Right::OPERAND];
    Ring<Shape::STAGES> ring;
    for (ProductTiles<Program> tile(args); tile.next(0);) {
        const long long row = Shape::SWAPPED ? tile.column : tile.row, column = Shape::SWAPPED ? tile.row : tile.column;
        const auto* const left = (args.*Of::LEFT_ARRAY).data + tile.matrix * of_left[0] + row * of_left[1];
        const auto* const right = (args.*Of::RIGHT_ARRAY).data + tile.matrix * of_right[0] + column * of_right[1];
        const long long from = SPAN == Span::NONE ? 0 : tile.first_term();
        const long long end = SPAN == Span::NONE ? args.depth : from + tile.terms();
#pragma unroll 1
        for (long long k = from; k < end; k += Shape::BLOCK_K) {
            shared.empty(ring.stage).wait(ring.parity ^ 1);
            unsigned char *const a = memory + ring.stage * Shape::STAGE, *const b = a + Shape::A;
            copy_panel<Shape::SWAPPED ? Shape::BLOCK_N : Shape::BLOCK_M>(
                Shape::SWAPPED ? b : a, left + k * of_left[2], of_left[1], of_left[2], args.rows - row, args.depth - k);
            copy_panel<Shape::SWAPPED ? Shape::BLOCK_M : Shape::BLOCK_N>(
                Shape::SWAPPED ? a : b, right + k * of_right[2], of_right[1], of_right[2], args.columns - column,
                args.depth - k);
            fence_proxy_async_shared();
            shared.full(ring.stage).arrive();
            ring.advance();
        }
    }
}
#endif

}  // namespace baracuda
