// The main loop of a consumer's warpgroup: multiplies what the producer has loaded, and hands sums to the epilogue (see
// product_sm90.cuh).
#pragma once

#include <baracuda/matrix/epilogue_sm90.cuh>
#ifdef BARACUDA_FACTOR_BYTES
#include <baracuda/arch/wgmma_bytes_sm90.cuh>
#else
#include <baracuda/arch/wgmma_sm90.cuh>
#endif

namespace baracuda {

// A warpgroup of consumers; `place` is its number.
template <class Program> struct ProductConsumer {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    using Product = Wgmma<FactorOf<Program, !Shape::SWAPPED>, Shape::BLOCK_N, FactorOf<Program, Shape::SWAPPED>>;
    using Sum = typename Product::Sum;
    static constexpr bool IN_PARTS =
        FACTOR_BYTES == 1 && Sum(0.5f) != 0;  // of a stage each, of which a sum keeps 14 bits
    static constexpr unsigned A_16 = Shape::A_SIDE ? 16 * 128 : 32, B_16 = Shape::B_SIDE ? 16 * 128 : 32;
    static constexpr unsigned ORDER = 1 + Shape::CONSUMERS;  // the named barriers by which warpgroups alternate
    static constexpr int ROWS_64 = Shape::ROWS / 64;         // of one product
    using Sums = Sum[Shape::STEPS][Product::REGISTERS];

    const ProductShared& shared;
    const int place, first_row;  // of its rows in a tile
    Ring<Shape::STAGES> ring = {};

    __device__ __forceinline__ void release(unsigned stage) const {
        const unsigned lane = threadIdx.x % 32;
        if (lane >= Shape::CLUSTER) return;
        if (Shape::CLUSTER == 1) shared.empty(stage).arrive();
        else arrive_at(shared.empty(stage), lane);
    }

    // Clears what a stage has after `left` of the depth, in both factors, for all warpgroups that share them.
    __device__ __forceinline__ void clear_after(int left, unsigned stage) const {
        static_assert(SPAN != Span::DEPTH || (Shape::A_SIDE && Shape::B_SIDE), "a row of a panel is of one place");
        constexpr int PANELS = Shape::BLOCK_M / 64 + (Shape::BLOCK_N + 63) / 64, CHUNKS = 128 / 16;
        const int chunks = (Shape::BLOCK_K - left) * CHUNKS;
        for (int i = int(threadIdx.x) - 128; i < PANELS * chunks; i += 128 * Shape::SHARING) {
            const int panel = i / chunks;
            const unsigned of_a = shared.a(stage) + panel * Shape::PANEL;
            const unsigned of_b = shared.b(stage) + (panel - Shape::BLOCK_M / 64) * Shape::PANEL;
            const float zeros[4] = {};
            store_shared_4((panel < Shape::BLOCK_M / 64 ? of_a : of_b) + left * 128 + i % chunks * 16, zeros);
        }
        fence_proxy_async_shared();
        bar_sync(ORDER, 128 * Shape::SHARING);
    }

    // Starts the products of a stage, whose factors are there; `fresh` sets the sums, `left` of the depth count.
    __device__ __forceinline__ void start(Sums& sum, const Matrix& of_a, const Matrix& of_b, bool fresh, int left) {
        shared.full(ring.stage).wait(ring.parity);
        if (SPAN == Span::DEPTH && left < Shape::BLOCK_K) clear_after(left, ring.stage);
        const Matrix a = of_a + ring.stage * Shape::STAGE, b = of_b + ring.stage * Shape::STAGE;
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s) fence_operand(sum[s]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int s = 0; s < Shape::STEPS; ++s) {
                const unsigned at = s / ROWS_64 * (Shape::BLOCK_M * 128) + s % ROWS_64 * Shape::PANEL;
                Product::template shared<Shape::B_SIDE, Shape::A_SIDE>(sum[s], a + (at + step * A_16), b + step * B_16,
                                                                       fresh && step == 0);
            }
        wgmma_commit();
    }

    // Whether any of its rows in a tile has terms.
    __device__ __forceinline__ bool is_live(const ProductTiles<Program>& tile, const Args& args) const {
        return SPAN != Span::ROWS || Shape::SWAPPED || tile.row + first_row < tile.span.live_rows(args);
    }
    // Leaves the products of a tile out, of which no sum is stored.
    __device__ __forceinline__ void pass_by(int depth) {
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            shared.full(ring.stage).wait(ring.parity);
            release(ring.stage);
            ring.advance();
        }
    }

    // The sums of a tile. `last`: no other follows it in this block.
    __device__ __forceinline__ void multiply(Sums& sum, int depth, bool last) {
        const Matrix of_a = Matrix::at(shared.a(0) + first_row * 128, Shape::PANEL);
        const Matrix of_b = Matrix::at(shared.b(0), Shape::PANEL);
        unsigned before = 0;
        if (Shape::ALTERNATE) bar_sync(ORDER + place, 256);
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            start(sum, of_a, of_b, k == 0, depth - k);
            if (k > 0) {
                wgmma_wait<1>();
                release(before);
            }
            before = ring.stage;
            ring.advance();
        }
        // The other's next products queue behind the last ones.
        if (Shape::ALTERNATE && !last) bar_arrive(ORDER + (place ^ 1), 256);
        wgmma_wait<0>();
        release(before);
    }

    // Likewise, of sums of a stage that are added to the tile's; while one warpgroup adds, others multiply.
    __device__ __forceinline__ void multiply_in_parts(Sums& sum, int depth) {
        static_assert(!Shape::ALTERNATE || !IN_PARTS, "warpgroups take the same tile");
        const Matrix of_a = Matrix::at(shared.a(0) + first_row * 128, Shape::PANEL);
        const Matrix of_b = Matrix::at(shared.b(0), Shape::PANEL);
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s)
#pragma unroll
            for (int i = 0; i < Product::REGISTERS; ++i) sum[s][i] = Sum(0);
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            Sums part;
            start(part, of_a, of_b, true, depth - k);
            wgmma_wait<0>();
            release(ring.stage);
            ring.advance();
#pragma unroll
            for (int s = 0; s < Shape::STEPS; ++s) {
                fence_operand(part[s]);
#pragma unroll
                for (int i = 0; i < Product::REGISTERS; ++i) sum[s][i] += part[s][i];
            }
        }
    }

    // Likewise, of sums that are multiplied by their weights as they are added. A part's are read while the part before
    // is multiplied.
    __device__ __forceinline__ void multiply_weighted(Sums& sum, int depth, const ProductTiles<Program>& tile,
                                                      const Args& args) {
        static_assert(!Shape::ALTERNATE || !WEIGHTED, "warpgroups take the same tile");
        using Part = PartShape<Shape::SWAPPED, 64, Shape::STEPS, Shape::BLOCK_N, ROW_SEGMENTS>;
        const Matrix of_a = Matrix::at(shared.a(0) + first_row * 128, Shape::PANEL);
        const Matrix of_b = Matrix::at(shared.b(0), Shape::PANEL);
        const int thread = threadIdx.x % 128, lane = thread % 32;
        const int down = tile.row + first_row + thread / 32 * 16 + lane / 4, across = tile.column + lane % 4 * 2;
        const bool has_any = SPAN == Span::NONE || tile.first_term() < int(args.depth);
        PartWeights<Program, Part> weights = {};
        if (has_any && depth > 0) {
            weights.seek(args, tile.matrix, down, across);
            weights.read(args, across, 0);
        }
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s)
#pragma unroll
            for (int i = 0; i < Product::REGISTERS; ++i) sum[s][i] = Sum(0);
#pragma unroll 1
        for (int k = 0; k < depth; k += Shape::BLOCK_K) {
            Sums part;
            weights.take(args);
            start(part, of_a, of_b, true, depth - k);
            if (has_any && k + Shape::BLOCK_K < depth) weights.read(args, across, k + Shape::BLOCK_K);
            wgmma_wait<0>();
            release(ring.stage);
            ring.advance();
#pragma unroll
            for (int s = 0; s < Shape::STEPS; ++s) {
                fence_operand(part[s]);
                weights.each(args, s,
                             [&](int i, float weight) { sum[s][i] = math::fma(part[s][i], weight, sum[s][i]); });
            }
        }
    }

    __device__ __forceinline__ void store(Sums& sum, ProductStore<Program>& results, const ProductTiles<Program>& tile,
                                          const Args& args) const {
        const int last = tile.span.last_row(args);
        const int rows = Shape::SWAPPED ? int(args.columns) : last, columns = Shape::SWAPPED ? last : int(args.columns);
        constexpr int ACROSS = Shape::SWAPPED ? Shape::BLOCK_N : 64;
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s) fence_operand(sum[s]);
#pragma unroll
        for (int s = 0; s < ROWS_64; ++s) {
            const int row = tile.row + first_row + 64 * s;
            if (row >= rows) break;
#pragma unroll
            for (int c = 0; c < Shape::WIDE; c += ACROSS) {
                if (tile.column + c >= columns) continue;
                const Sum* of[PRODUCTS];
#pragma unroll
                for (int p = 0; p < PRODUCTS; ++p)
                    of[p] = Shape::OF_A > 1 ? sum[p * ROWS_64 + s] + c / 2 : sum[s] + (p * Shape::WIDE + c) / 2;
                results.panel(of, row, tile.column + c, tile, args);
            }
        }
    }

    // Brings what of matrices the tile's results are made of to the L2 cache, while products are computed.
    __device__ __forceinline__ void prefetch(const ProductTiles<Program>& tile, const Args& args) const {
        constexpr int DOWN = Shape::SWAPPED ? Shape::BLOCK_N : Shape::ROWS;
        constexpr int ACROSS = Shape::SWAPPED ? Shape::ROWS : Shape::WIDE;
        const int row = Shape::SWAPPED ? tile.column : tile.row + first_row;
        const int column = Shape::SWAPPED ? tile.row + first_row : tile.column;
        if (SPLIT != Split::NONE) return;
        FragmentPacks<Program, FragmentCells<Shape::SWAPPED, true>> none;
        none.reads(args, [&](auto&, const auto* data, int operand) {
            const long long* const stride = args.stride[operand];
            if (is_vector(operand) || stride[2] != 1) return;
            const int bytes = int(min((long long)ACROSS, args.columns - column) * sizeof(*data)) & ~15;
            const auto* const first = data + tile.matrix * stride[0] + column;
            for (int i = int(threadIdx.x) % 128; i < DOWN && row + i < tile.span.last_row(args); i += 128) {
                const auto* const from = first + (row + i) * stride[1];
                if (bytes > 0 && size_t(from) % 16 == 0) prefetch_bytes(from, bytes);
            }
        });
    }

    // Leaves a tile to the other warpgroup.
    __device__ __forceinline__ void skip(ProductTiles<Program>& tile, int depth) {
        tile.skip();
        ring.advance(unsigned(depth + Shape::BLOCK_K - 1) / Shape::BLOCK_K);
    }

    __device__ __forceinline__ void all_tiles(unsigned rank, const Args& args) {
        ProductStore<Program> results = {shared.result(place * Shape::RESULTS), unsigned(1 + place)};
        static_assert(SPAN == Span::NONE || !Shape::ALTERNATE, "the other's tile may have another depth");
        ProductTiles<Program> tile(args);
        const int depth = int(args.depth);
        if (Shape::ALTERNATE && place == 1) {
            if (!tile.is_last()) bar_arrive(ORDER, 256);
            skip(tile, depth);
        }
        while (tile.next(rank)) {
            Sums sum;
            const int terms = SPAN == Span::NONE ? depth : tile.terms();
            prefetch(tile, args);
            if (!is_live(tile, args)) pass_by(terms);
            else if constexpr (WEIGHTED) multiply_weighted(sum, terms, tile, args);
            else if constexpr (IN_PARTS) multiply_in_parts(sum, terms);
            else multiply(sum, terms, tile.is_last());
            store(sum, results, tile, args);
            if (Shape::ALTERNATE) skip(tile, depth);
        }
        if (ProductStore<Program>::STAGED && threadIdx.x % 128 == 0) bulk_wait<0>();
    }
};

}  // namespace baracuda
