// Matrix products of 16-bit and 8-bit types for sm_90a, with TMA, wgmma and sums in f32, of whole numbers in 32 bits.
//
// block -> tiles of the result, one after the other (persistent); a cluster of two has tiles below each other and
// shares the tile of the second factor
// warpgroup 0 -> the producer: its first thread issues TMA loads of both factors, 128 bytes of the depth at a time.
// COPIED: all its threads load what TMA cannot address warpgroup 1 ... -> consumers, each of which has its share of the
// tile's rows in registers, or alternate tiles
//
// Every sum adds its terms in the order of the depth, 32 bytes to an instruction, whatever the tile: its bits depend on
// a row of one factor and a column of the other alone, and are those of mma.sync, but for 8-bit floats: instructions
// keep 14 bits of these sums, so 128 of the depth at a time are added up in f32.
//
// SWAPPED: the rows of a tile are columns of the result, for products of few rows. `a` and `b` are the factors of the
// instruction: left and right, or right and left.
//
// Beyond the edges of the factors TMA gives zeros for both. Rows of a segment are stored by threads where a box of the
// copy engine would reach beyond them; terms after the last of a part of the depth are cleared in shared memory.
#pragma once

#include <baracuda/arch/barrier.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tiles_sm90.cuh>
#ifdef BARACUDA_FACTOR_BYTES
#include <baracuda/arch/wgmma_bytes_sm90.cuh>
#else
#include <baracuda/arch/wgmma_sm90.cuh>
#endif
#include <baracuda/shared.cuh>

namespace baracuda {

// Panels start at multiples of 1024 bytes.
__device__ constexpr unsigned panels_of(unsigned bytes) { return (bytes + 1023) / 1024 * 1024; }

// The layout of shared memory: tiles of BLOCK_M x BLOCK_N, STAGES buffers of both factors, clusters of CLUSTER blocks.
// A factor is in panels of 128 bytes a row: its rows, where the depth is contiguous, else (of halves) 64 of its sides
// by 64 of the depth. Boxes of the maps: 64 rows of a panel of results, or with SWAPPED all BLOCK_N.
struct ProductShape {
    static constexpr bool SWAPPED = Schedule::SWAPPED;
    static constexpr int BLOCK_M = Schedule::BLOCK_M, BLOCK_N = Schedule::BLOCK_N, BLOCK_K = 128 / FACTOR_BYTES;
    static constexpr int CLUSTER = Schedule::CLUSTER;
    // ALTERNATE: each warpgroup has tiles of its own, and makes results while the other multiplies.
    static constexpr bool ALTERNATE = Schedule::ALTERNATE;
    static constexpr int CONSUMERS = Schedule::THREADS / 128 - 1, SHARING = ALTERNATE ? 1 : CONSUMERS;
    static constexpr int ROWS = BLOCK_M / SHARING, STEPS = ROWS / 64;
    static_assert(!ALTERNATE || CONSUMERS == 2, "two warpgroups take turns");
    // Whether the sides of a factor are contiguous, not the depth.
    static constexpr bool A_SIDE = SWAPPED ? RIGHT_SIDE : LEFT_SIDE, B_SIDE = SWAPPED ? LEFT_SIDE : RIGHT_SIDE;
    static_assert(Schedule::THREADS % 128 == 0 && ROWS % 64 == 0 && ROWS * SHARING == BLOCK_M, "64 rows a product");
    static_assert(BLOCK_N / CLUSTER % 8 == 0, "each block of a cluster loads eights of rows");
    static_assert(FACTOR_BYTES > 1 || !(A_SIDE || B_SIDE), "no instruction transposes bytes");
    static constexpr bool COPIED = !BARACUDA_TMA;
    static_assert(!COPIED || CLUSTER == 1, "threads copy for their own block");

    static constexpr unsigned PANEL = 64 * 128;  // bytes of one whose sides are contiguous, and of results
    static constexpr unsigned A = BLOCK_M * 128, B = (B_SIDE ? (BLOCK_N + 63) / 64 * 64 : BLOCK_N) * 128;
    static constexpr unsigned STAGE = A + panels_of(B), USUAL_STAGE = A + panels_of(BLOCK_N * 128);
    static constexpr int STAGES = Schedule::STAGES * USUAL_STAGE / STAGE;  // fewer of narrow tiles in whole panels
    static constexpr unsigned RESULT = SWAPPED ? BLOCK_N * 128 : PANEL, RESULTS = 2;  // of each consumer
    static constexpr unsigned RESULTS_AT = Schedule::STAGES * USUAL_STAGE;
    static constexpr unsigned BARRIERS = RESULTS_AT + CONSUMERS * RESULTS * RESULT,
                              SIZE = BARRIERS + 16 * Schedule::STAGES;

    // Registers per thread after setmaxnreg, in steps of 8.
    static constexpr bool REGISTERS_MOVE = CONSUMERS > 1;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS != 2 ? 160 : COPIED ? 208 : 232;
    static constexpr int PRODUCER_REGISTERS = CONSUMERS != 2 ? 32 : COPIED ? 88 : 40;  // threads that copy need more
};

struct ProductShared {
    using Shape = ProductShape;
    unsigned base;

    __device__ __forceinline__ unsigned a(unsigned stage) const { return base + stage * Shape::STAGE; }
    __device__ __forceinline__ unsigned b(unsigned stage) const { return a(stage) + Shape::A; }
    __device__ __forceinline__ unsigned result(unsigned nth) const {
        return base + Shape::RESULTS_AT + nth * Shape::RESULT;
    }
    __device__ __forceinline__ Barrier full(unsigned stage) const { return {base + Shape::BARRIERS + 8 * stage}; }
    __device__ __forceinline__ Barrier empty(unsigned stage) const {
        return {base + Shape::BARRIERS + 8 * (Shape::STAGES + stage)};
    }
    __device__ void init() const {
        for (int i = 0; i < Shape::STAGES; ++i) {
            full(i).init(Shape::COPIED ? 128 : 1);
            empty(i).init(4 * Shape::SHARING * Shape::CLUSTER);
        }
        fence_barrier_init();
    }
};

// The tiles of a cluster: in bands of GROUP tiles of rows, so that what runs at a time reads few rows and few columns,
// which stay in the L2 cache.
template <class Program> struct ProductTiles {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    static constexpr int GROUP = 8;
    const Args& args;
    Spans<Program, int> span;
    int rows, columns, each, count, index;  // tiles of a cluster along both sides, of a matrix, of all; the next one
    int row, column, matrix;                // of the current tile of this block
    int first;                              // tile of the matrix

    __device__ __forceinline__ explicit ProductTiles(const Args& of)
        : args(of), span(of), index(int(blockIdx.x) / Shape::CLUSTER), row(0), column(0), matrix(0), first(0) {
        measure();
        count = each * int(args.batch);
    }
    // The tiles of the matrix at hand.
    __device__ __forceinline__ void measure() {
        constexpr int ROWS = Shape::BLOCK_M * Shape::CLUSTER;
        const int of_rows = span.last_row(args) - span.first_row();
        rows = ((Shape::SWAPPED ? int(args.columns) : of_rows) + ROWS - 1) / ROWS;
        columns = ((Shape::SWAPPED ? of_rows : int(args.columns)) + Shape::BLOCK_N - 1) / Shape::BLOCK_N;
        each = rows * columns;
    }
    // Of the result: its first row in the tile.
    __device__ __forceinline__ int first_row() const {
        return Shape::SWAPPED ? column : row / (Shape::BLOCK_M * Shape::CLUSTER) * (Shape::BLOCK_M * Shape::CLUSTER);
    }
    // Of how many places of the depth its sums are: the same for all blocks of a cluster, which load for each other.
    // Where there are no terms it is one place beyond the edge, of zeros.
    __device__ __forceinline__ int terms() const {
        const int terms = span.terms(first_row(), args);
        return SPAN == Span::NONE ? terms : max(terms, 1);
    }
    __device__ __forceinline__ int first_term() const {
        const bool has_any = SPAN == Span::NONE || span.terms(first_row(), args) > 0;
        return has_any ? span.first_term() : int(args.depth);
    }
    __device__ __forceinline__ int step() const { return int(gridDim.x) / Shape::CLUSTER; }
    __device__ __forceinline__ void skip() { index += step(); }
    __device__ __forceinline__ bool is_last() const { return index >= count; }  // of this block
    // Moves on to the next tile; false after the last.
    __device__ __forceinline__ bool next(unsigned rank) {
        if (ROW_SEGMENTS) {
            while (index >= first + each && matrix < int(args.batch)) {
                first += each;
                span.seek(++matrix, args);
                measure();
            }
            if (index >= first + each) return false;
        } else {
            if (index >= count) return false;
            matrix = index / each;
            span.seek(matrix, args);
            first = matrix * each;
        }
        const int place = index - first, band = place / (GROUP * columns), top = band * GROUP;
        const int high = min(GROUP, rows - top), within = place - top * columns;
        column = within / high * Shape::BLOCK_N + (Shape::SWAPPED ? span.first_row() : 0);
        row = ((top + within % high) * Shape::CLUSTER + int(rank)) * Shape::BLOCK_M;
        if (!Shape::SWAPPED) row += span.first_row();
        index += step();
        return true;
    }
};

#if BARACUDA_TMA
// One thread issues all loads.
template <class Program>
__device__ __forceinline__ void produce(const ProductShared& shared, unsigned rank,
                                        const typename Program::Args& args) {
    using Shape = ProductShape;
    using Of = Factors<Program>;
    // Of the rows of b's panels, which blocks of a cluster load for each other.
    constexpr int SHARE = (Shape::B_SIDE ? Shape::BLOCK_K : Shape::BLOCK_N) / Shape::CLUSTER;
    constexpr unsigned short ALL = (1 << Shape::CLUSTER) - 1;
    const TensorMap& a_map = Shape::SWAPPED ? args.right_map : args.left_map;
    const TensorMap& b_map = Shape::SWAPPED ? args.left_map : args.right_map;
    const bool moves_a = args.stride[Shape::SWAPPED ? Of::Right::OPERAND : Of::Left::OPERAND][0] != 0;
    const bool moves_b = args.stride[Shape::SWAPPED ? Of::Left::OPERAND : Of::Right::OPERAND][0] != 0;
    const auto load_b = [&](unsigned to, Barrier full, int x, int y, int matrix) {
        if (Shape::CLUSTER > 1) load_tile_to_blocks(to, b_map, full, ALL, x, y, matrix, EVICT_NORMAL);
        else load_tile(to, b_map, full, x, y, matrix, EVICT_NORMAL);
    };
    const int share = int(rank) * SHARE;
    Ring<Shape::STAGES> ring;
    for (ProductTiles<Program> tile(args); tile.next(rank);) {
        const int from = tile.first_term(), depth = from + tile.terms();
        const int a_matrix = moves_a ? tile.matrix : 0, b_matrix = moves_b ? tile.matrix : 0;
#pragma unroll 1
        for (int k = from; k < depth; k += Shape::BLOCK_K) {
            const Barrier full = shared.full(ring.stage);
            shared.empty(ring.stage).wait(ring.parity ^ 1);
            full.expect(Shape::A + Shape::B);
            const unsigned a = shared.a(ring.stage), b = shared.b(ring.stage) + share * 128;
            if (Shape::A_SIDE) {
#pragma unroll
                for (int i = 0; i < Shape::BLOCK_M / 64; ++i)
                    load_tile(a + i * Shape::PANEL, a_map, full, tile.row + 64 * i, k, a_matrix, EVICT_NORMAL);
            } else {
                load_tile(a, a_map, full, k, tile.row, a_matrix, EVICT_NORMAL);
            }
            if (Shape::B_SIDE) {
#pragma unroll
                for (int i = 0; i < (Shape::BLOCK_N + 63) / 64; ++i)
                    load_b(b + i * Shape::PANEL, full, tile.column + 64 * i, k + share, b_matrix);
            } else {
                load_b(b, full, k, tile.column + share, b_matrix);
            }
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
    static_assert(SPAN == Span::NONE, "parts of matrices are moved by TMA, or by another kernel");
    using Shape = ProductShape;
    using Of = Factors<Program>;
    const long long *const of_left = args.stride[Of::Left::OPERAND], *const of_right = args.stride[Of::Right::OPERAND];
    Ring<Shape::STAGES> ring;
    for (ProductTiles<Program> tile(args); tile.next(0);) {
        const long long row = Shape::SWAPPED ? tile.column : tile.row, column = Shape::SWAPPED ? tile.row : tile.column;
        const auto* const left = (args.*Of::LEFT_ARRAY).data + tile.matrix * of_left[0] + row * of_left[1];
        const auto* const right = (args.*Of::RIGHT_ARRAY).data + tile.matrix * of_right[0] + column * of_right[1];
#pragma unroll 1
        for (long long k = 0; k < args.depth; k += Shape::BLOCK_K) {
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

// What a warpgroup has of a tile becomes results. STAGED: they go through shared memory, 64 columns of the tile at a
// time, or with SWAPPED its 64 rows, in two buffers.
template <class Program> struct ProductStore {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    using Element = typename Factors<Program>::Result::element_t;
    static constexpr bool STAGED = BARACUDA_STAGED;
    static_assert(!STAGED || sizeof(Element) == 2, "panels are of 16-bit elements");
    // Whether a thread reads all for a panel before it makes anything of it: as much as registers hold.
    static constexpr bool READ_AHEAD = ARRAYS_READ<Program> > 0 && FRAGMENT_REGISTERS<Program> <= 16;
    unsigned results;  // the buffers of this warpgroup
    unsigned barrier;  // its named barrier
    unsigned turn = 0;

    // `sum`: the thread's part of PIECES x 16 columns of the tile from `column` on.
    template <typename Sum>
    __device__ __forceinline__ void panel(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                          const Args& args) {
        constexpr int PIECES = Shape::SWAPPED ? Shape::BLOCK_N / 16 : 4;
        const long long rows = SPAN == Span::ROWS ? tile.span.live_rows(args) : args.rows;
        const long long down = Shape::SWAPPED ? args.columns : rows, along = Shape::SWAPPED ? rows : args.columns;
        if constexpr (Program::SINKS > 0) {
            if (row + 64 <= down && column + PART <= along) sinks<true>(sum, row, column, tile, args);
            else sinks<false>(sum, row, column, tile, args);
            return;
        }
        if (row + 64 <= down && column + 16 * PIECES <= along) pieces<true, PIECES>(sum, row, column, tile, args);
        else pieces<false, PIECES>(sum, row, column, tile, args);
    }

private:
    template <bool WHOLE, typename Sum>
    __device__ __forceinline__ static void sinks(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                                 const Args& args) {
        static_assert(!Shape::SWAPPED || Program::SINKS == 0, "a thread has columns of few rows");
        Sum parts[2][2][8];
        FragmentCells<Shape::SWAPPED, WHOLE> cells[2][2];
#pragma unroll
        for (int piece = 0; piece < PART / 16; ++piece) {
            cells[piece / 2][piece % 2] = cells_of<WHOLE>(piece, row, column, tile, args);
#pragma unroll
            for (int i = 0; i < 8; ++i) parts[piece / 2][piece % 2][i] = sum[8 * piece + i];
        }
        reduce_part<Program>(parts, cells, args);
    }
    // The cells of 16 columns of the tile.
    template <bool WHOLE>
    __device__ __forceinline__ static auto cells_of(int piece, int row, int column, const ProductTiles<Program>& tile,
                                                    const Args& args) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        const int down = row + 16 * warp + lane / 4, along = column + lane % 4 * 2 + 16 * piece;
        const long long r = Shape::SWAPPED ? along : down, c = Shape::SWAPPED ? down : along;
        return FragmentCells<Shape::SWAPPED, WHOLE>{tile.matrix, r, c, tile.span.last_row(args), args.columns};
    }
    template <bool WHOLE, typename Sum>
    __device__ __forceinline__ static void sums_of(Sum (&part)[8], const Sum* sum,
                                                   const FragmentCells<Shape::SWAPPED, WHOLE>& cells,
                                                   const ProductTiles<Program>& tile, const Args& args) {
#pragma unroll
        for (int i = 0; i < 8; ++i) part[i] = sum[i];
        if (SPAN == Span::ROWS && !SEGMENTS && !WHOLE)
            clear_beyond<FragmentCells<Shape::SWAPPED, WHOLE>>(part, cells.row, tile.span.live_rows(args));
    }
    __device__ __forceinline__ void wait_for_buffer() {
        turn ^= 1;
        if (threadIdx.x % 128 == 0) bulk_wait_read<1>();
        bar_sync(barrier, 128);
    }
    template <bool WHOLE, int PIECES, bool BOXED, typename Sum>
    __device__ __forceinline__ void at_once(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                            const Args& args, unsigned buffer) {
        FragmentPacks<Program, FragmentCells<Shape::SWAPPED, WHOLE>> packs[PIECES];
        Sum parts[PIECES][8];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            read_fragment(packs[piece], cells, args);
            sums_of<WHOLE>(parts[piece], sum + 8 * piece, cells, tile, args);
        }
        compute_fragments<Program>(packs, parts, args);
        if (BOXED) wait_for_buffer();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            const auto result = store_fragment<Program, BOXED>(packs[piece], cells, args);
            if constexpr (BOXED) into_buffer(buffer, piece, threadIdx.x % 128, result);
        }
    }
    template <bool WHOLE, int PIECES, bool BOXED, typename Sum>
    __device__ __forceinline__ void one_by_one(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                               const Args& args, unsigned buffer) {
        if (BOXED) wait_for_buffer();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            Sum part[1][8];
            sums_of<WHOLE>(part[0], sum + 8 * piece, cells, tile, args);
            const auto result = finish<Program, BOXED>(part, cells, args);
            if constexpr (BOXED) into_buffer(buffer, piece, threadIdx.x % 128, result);
        }
    }
    template <bool WHOLE, int PIECES, typename Sum>
    __device__ __forceinline__ void pieces(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                           const Args& args) {
        constexpr bool BOXED = STAGED && (WHOLE || !ROW_SEGMENTS);  // boxes end where the array does
        const int thread = threadIdx.x % 128;
        const unsigned buffer = results + turn * Shape::RESULT;
        if constexpr (READ_AHEAD) at_once<WHOLE, PIECES, BOXED>(sum, row, column, tile, args, buffer);
        else one_by_one<WHOLE, PIECES, BOXED>(sum, row, column, tile, args, buffer);
        if (!BOXED) return;
        fence_proxy_async_shared();
        bar_sync(barrier, 128);
#if BARACUDA_TMA
        if (thread == 0) store_box(buffer, row, column, tile, args);
#endif
    }
#if BARACUDA_TMA
    __device__ __forceinline__ static void store_box(unsigned buffer, int row, int column,
                                                     const ProductTiles<Program>& tile, const Args& args) {
        store_tile(args.result_map, buffer, Shape::SWAPPED ? row : column, Shape::SWAPPED ? column : row,
                   ROW_SEGMENTS ? 0 : tile.matrix);
        bulk_commit();
    }
#endif
    // Sums of rows from the last that counts on are 0; the first of `part` are of row `r`.
    template <class Cells, typename Sum>
    __device__ __forceinline__ static void clear_beyond(Sum (&part)[8], long long r, long long live) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (r + Cells::row_of(i / 2) + (Shape::SWAPPED ? i % 2 : 0) >= live) part[i] = Sum(0);
    }
    // Stores the elements of 16 columns of the tile.
    template <class Result>
    __device__ __forceinline__ static void into_buffer(unsigned buffer, int piece, int thread, const Result& result) {
        const int lane = thread % 32, warp = thread / 32;
        unsigned word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = __builtin_bit_cast(unsigned, result.pair[i]);
        if (Shape::SWAPPED) {
            // Matrices of 8 rows and 8 columns of the result: words 0 and 1 are columns beside each other.
            const unsigned r = 16 * piece + lane % 8 + lane / 16 * 8, chunk = 2 * warp + lane / 8 % 2;
            stmatrix_x4_trans(buffer + r * 128 + ((chunk ^ r % 8) << 4), word);
        } else {
            const unsigned r = 16 * warp + lane % 16, chunk = 2 * piece + lane / 16;
            stmatrix_x4(buffer + r * 128 + ((chunk ^ r % 8) << 4), word);
        }
    }
};

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
            for (int s = 0; s < Shape::STEPS; ++s)
                Product::template shared<Shape::B_SIDE, Shape::A_SIDE>(sum[s], a + (s * Shape::PANEL + step * A_16),
                                                                       b + step * B_16, fresh && step == 0);
        wgmma_commit();
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

    __device__ __forceinline__ void store(Sums& sum, ProductStore<Program>& results, const ProductTiles<Program>& tile,
                                          const Args& args) const {
        const int last = tile.span.last_row(args);
        const int rows = Shape::SWAPPED ? int(args.columns) : last, columns = Shape::SWAPPED ? last : int(args.columns);
        constexpr int ACROSS = Shape::SWAPPED ? Shape::BLOCK_N : 64;
#pragma unroll
        for (int s = 0; s < Shape::STEPS; ++s) {
            fence_operand(sum[s]);
            const int row = tile.row + first_row + 64 * s;
            if (row >= rows) break;
#pragma unroll
            for (int c = 0; c < Shape::BLOCK_N; c += ACROSS)
                if (tile.column + c < columns) results.panel(sum[s] + c / 2, row, tile.column + c, tile, args);
        }
    }

    // Brings what of matrices the tile's results are made of to the L2 cache, while products are computed.
    __device__ __forceinline__ void prefetch(const ProductTiles<Program>& tile, const Args& args) const {
        constexpr int DOWN = Shape::SWAPPED ? Shape::BLOCK_N : Shape::ROWS;
        constexpr int ACROSS = Shape::SWAPPED ? Shape::ROWS : Shape::BLOCK_N;
        const int row = Shape::SWAPPED ? tile.column : tile.row + first_row;
        const int column = Shape::SWAPPED ? tile.row + first_row : tile.column;
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
            if constexpr (IN_PARTS) multiply_in_parts(sum, terms);
            else multiply(sum, terms, tile.is_last());
            store(sum, results, tile, args);
            if (Shape::ALTERNATE) skip(tile, depth);
        }
        if (ProductStore<Program>::STAGED && threadIdx.x % 128 == 0) bulk_wait<0>();
    }
};

template <class Program> __device__ constexpr int blocks_per_sm() { return 1; }

template <class Program> __device__ __forceinline__ void walk(const typename Program::Args& args) {
    using Shape = ProductShape;
    DYN_SHARED(unsigned char, dynamic);
    static_assert(reserves(1024 + Shape::SIZE, 1024), "the launch reserves ProductShared");
    const unsigned pad = -shared_address(dynamic) & 1023;  // panels start at multiples of 1024
    const ProductShared shared = {shared_address(dynamic) + pad};
    const int warpgroup = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);  // the same register in all lanes
    const unsigned rank = Shape::CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) shared.init();
    if (Shape::CLUSTER > 1) cluster_sync();
    else __syncthreads();
    if (warpgroup == 0) {
        if (Shape::REGISTERS_MOVE) deallocate_registers<Shape::PRODUCER_REGISTERS>();
#if BARACUDA_TMA
        if (threadIdx.x == 0) produce<Program>(shared, rank, args);
#else
        produce<Program>(shared, dynamic + pad, args);
#endif
        __syncwarp();
    } else {
        if (Shape::REGISTERS_MOVE) allocate_registers<Shape::CONSUMER_REGISTERS>();
        const int place = warpgroup - 1;
        ProductConsumer<Program>{shared, place, Shape::ALTERNATE ? 0 : place * Shape::ROWS}.all_tiles(rank, args);
        __syncwarp();
    }
    if (Shape::CLUSTER > 1) cluster_sync();  // nobody leaves while others may still arrive at its barriers
}

}  // namespace baracuda
