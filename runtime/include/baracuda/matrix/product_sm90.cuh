// Matrix products of 16-bit and 8-bit types for sm_90a, with TMA, wgmma and sums in f32, of whole numbers in 32 bits.
//
// block -> tiles of the result, one after the other (persistent); a cluster of two has tiles below each other and
// shares the tile of the second factor; where matrices have parts of the rows (TURNS), the last tiles of an odd number
// are beside each other and share the tile of the first factor
//
// warpgroup 0 -> the producer: its first thread issues TMA loads of both factors, 128 bytes of the depth at a time.
// COPIED: all its threads load what TMA cannot address
//
// warpgroup 1 ... -> consumers, each of which has its share of the tile's rows in registers, or alternate tiles
//
// Every sum adds its terms in the order of the depth, 32 bytes to an instruction, whatever the tile: its bits depend on
// a row of one factor and a column of the other alone, and are those of mma.sync, but for 8-bit floats: instructions
// keep 14 bits of these sums, so 128 of the depth at a time are added up in f32.
//
// SWAPPED: the rows of a tile are columns of the result, for products of few rows. `a` and `b` are the factors of the
// instruction: left and right, or right and left. Two right factors share the columns of a tile, or with SWAPPED each
// has as many rows.
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
    static constexpr bool TURNS = SPAN == Span::ROWS && CLUSTER > 1;
    // ALTERNATE: each warpgroup has tiles of its own, and makes results while the other multiplies.
    static constexpr bool ALTERNATE = Schedule::ALTERNATE;
    static constexpr int CONSUMERS = Schedule::THREADS / 128 - 1, SHARING = ALTERNATE ? 1 : CONSUMERS;
    static constexpr int ROWS = BLOCK_M / SHARING;
    static constexpr int OF_A = SWAPPED ? PRODUCTS : 1, OF_B = PRODUCTS / OF_A;  // factors in the place of a and of b
    static constexpr int STEPS = OF_A * ROWS / 64, WIDE = BLOCK_N / OF_B;        // of the instruction, of a sum's tile
    static_assert(!ALTERNATE || CONSUMERS == 2, "two warpgroups take turns");
    // Whether the sides of a factor are contiguous, not the depth.
    static constexpr bool A_SIDE = SWAPPED ? RIGHT_SIDE : LEFT_SIDE, B_SIDE = SWAPPED ? LEFT_SIDE : RIGHT_SIDE;
    static_assert(Schedule::THREADS % 128 == 0 && ROWS % 64 == 0 && ROWS * SHARING == BLOCK_M, "64 rows a product");
    static_assert(BLOCK_N / CLUSTER % 8 == 0, "each block of a cluster loads eights of rows");
    static_assert(OF_B == 1 || WIDE % 64 == 0, "whole panels of both");
    static_assert(!TURNS || (!SWAPPED && CLUSTER == 2 && BLOCK_M / 2 % 8 == 0), "pairs of tiles turn");
    static_assert(FACTOR_BYTES > 1 || !(A_SIDE || B_SIDE), "no instruction transposes bytes");
    static constexpr bool COPIED = !BARACUDA_TMA;
    static_assert(!COPIED || CLUSTER == 1, "threads copy for their own block");

    static constexpr unsigned PANEL = 64 * 128;  // bytes of one whose sides are contiguous, and of results
    static constexpr unsigned A = OF_A * BLOCK_M * 128, B = (B_SIDE ? (BLOCK_N + 63) / 64 * 64 : BLOCK_N) * 128;
    static constexpr unsigned STAGE = A + panels_of(B), USUAL_STAGE = A / OF_A + panels_of(BLOCK_N * 128);
    static constexpr int STAGES = Schedule::STAGES * USUAL_STAGE / STAGE;             // fewer of larger stages
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
template <class Program, bool WARPS = true> struct ProductTiles {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    static constexpr int GROUP = 8;
    const Args& args;
    Spans<Program, int, WARPS> span;
    int rows, columns, each, count, index;  // tiles of a cluster along both sides, of a matrix, of all; the next one
    int row, column, matrix;                // of the current tile of this block
    int first;                              // tile of the matrix
    bool beside = false;                    // TURNS: tiles of the cluster are beside each other
    int top_row = 0, live_rows = 0;         // SPAN::ROWS: the first row of the cluster; tiles of rows with terms

    __device__ __forceinline__ explicit ProductTiles(const Args& of)
        : args(of), span(of), index(int(blockIdx.x) / Shape::CLUSTER), row(0), column(0), matrix(0), first(0) {
        measure();
        count = each * int(args.batch);
    }
    __device__ __forceinline__ static int ceil_div(int a, int b) { return (a + b - 1) / b; }
    // The tiles of the matrix at hand.
    __device__ __forceinline__ void measure() {
        constexpr int ROWS = Shape::BLOCK_M * Shape::CLUSTER;
        const int of_rows = span.last_row(args) - span.first_row();
        rows = ceil_div(Shape::SWAPPED ? int(args.columns) : of_rows, Shape::TURNS ? Shape::BLOCK_M : ROWS);
        columns = ceil_div(Shape::SWAPPED ? of_rows : int(args.columns), Shape::WIDE);
        if (!Shape::TURNS) {
            each = rows * columns;
            return;
        }
        live_rows = ceil_div(span.live_rows(args) - span.first_row(), Shape::BLOCK_M);
        each = (live_rows / 2 + ceil_div(rows - live_rows, 2)) * columns + live_rows % 2 * ceil_div(columns, 2);
    }
    // Of the result: its first row in the tile.
    __device__ __forceinline__ int first_row() const {
        if (Shape::SWAPPED || Shape::TURNS) return Shape::SWAPPED ? column : top_row;
        return row / (Shape::BLOCK_M * Shape::CLUSTER) * (Shape::BLOCK_M * Shape::CLUSTER);
    }
    // Of how many places of the depth its sums are: the same for all blocks of a cluster, which load for each other.
    // Where there are no terms it is one place beyond the edge, of zeros; boxes begin at multiples of 16 bytes there,
    // too.
    __device__ __forceinline__ int terms() const {
        const int terms = span.terms(first_row(), args);
        return SPAN == Span::NONE ? terms : max(terms, 1);
    }
    __device__ __forceinline__ int first_term() const {
        const bool has_any = SPAN == Span::NONE || span.terms(first_row(), args) > 0;
        const int beyond = (int(args.depth) + Shape::BLOCK_K - 1) / Shape::BLOCK_K * Shape::BLOCK_K;
        return has_any ? span.first_term() : beyond;
    }
    __device__ __forceinline__ int step() const { return int(gridDim.x) / Shape::CLUSTER; }
    __device__ __forceinline__ void skip() { index += step(); }
    __device__ __forceinline__ bool is_last() const { return index >= count; }  // of this block
    // Moves on to the next tile; false after the last.
    __device__ __forceinline__ bool next(unsigned rank) {
        if (ROW_SEGMENTS || Shape::TURNS) {
            const int last = int(args.batch) - (ROW_SEGMENTS ? 0 : 1);
            while (index >= first + each && matrix < last) {
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
        if (Shape::TURNS) turn(index - first, int(rank));
        else take(index - first, rows, int(rank), 0);
        index += step();
        return true;
    }

private:
    // The tile of the matrix, in bands of its first `of_rows` tiles from the row `from` on.
    __device__ __forceinline__ void take(int place, int of_rows, int rank, int from) {
        const int band = place / (GROUP * columns), top = band * GROUP;
        const int high = min(GROUP, of_rows - top), within = place - top * columns;
        column = within / high * Shape::WIDE + (Shape::SWAPPED ? span.first_row() : 0);
        row = ((top + within % high) * Shape::CLUSTER + rank) * Shape::BLOCK_M;
        if (!Shape::SWAPPED) row += span.first_row();
        if (Shape::TURNS) row += from, top_row = row - rank * Shape::BLOCK_M;
    }
    // Pairs below each other with terms, then those beside each other, then what has no terms.
    __device__ __forceinline__ void turn(int place, int rank) {
        const int pairs = live_rows / 2, odd = live_rows % 2 * ceil_div(columns, 2);
        place -= pairs * columns;
        beside = place >= 0 && place < odd;
        if (place < 0) {
            take(place + pairs * columns, pairs, rank, 0);
        } else if (beside) {
            column = (place * 2 + rank) * Shape::WIDE;
            row = top_row = span.first_row() + (live_rows - 1) * Shape::BLOCK_M;
        } else {
            take(place - odd, ceil_div(rows - live_rows, 2), rank, live_rows * Shape::BLOCK_M);
        }
    }
};

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
        const TileLoads<Program> loads = {
            args, rank, tile.row, tile.column, tile.matrix, share_a, Shape::CLUSTER > 1 && !share_a};
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

// What a warpgroup has of a tile becomes results. STAGED: they go through shared memory, 64 columns of the tile at a
// time, or with SWAPPED its 64 rows, in two buffers.
template <class Program> struct ProductStore {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    using Element = typename Factors<Program>::Result::element_t;
    static constexpr bool STAGED = BARACUDA_STAGED;
    static_assert(!STAGED || sizeof(Element) == 2, "panels are of 16-bit elements");
    // Whether a thread reads all for a panel before it makes anything of it: as much as registers hold.
    static constexpr bool READ_AHEAD = PRODUCTS == 1 && ARRAYS_READ<Program> > 0 && FRAGMENT_REGISTERS<Program> <= 16;
    unsigned results;  // the buffers of this warpgroup
    unsigned barrier;  // its named barrier
    unsigned turn = 0;

    // `sum`: the thread's part of PIECES x 16 columns of the tile from `column` on, of each product.
    template <typename Sum>
    __device__ __forceinline__ void panel(const Sum* const (&sum)[PRODUCTS], int row, int column,
                                          const ProductTiles<Program>& tile, const Args& args) {
        constexpr int PIECES = Shape::SWAPPED ? Shape::BLOCK_N / 16 : 4;
        const long long rows = SPAN == Span::ROWS ? tile.span.live_rows(args) : args.rows;
        const long long down = Shape::SWAPPED ? args.columns : rows, along = Shape::SWAPPED ? rows : args.columns;
        if constexpr (Program::SINKS > 0) {
            if (row + 64 <= down && column + PART <= along) sinks<true>(sum[0], row, column, tile, args);
            else sinks<false>(sum[0], row, column, tile, args);
            return;
        }
        if (row + 64 <= down && column + 16 * PIECES <= along) pieces<true, PIECES>(sum, row, column, tile, args);
        else pieces<false, PIECES>(sum, row, column, tile, args);
    }

private:
    template <bool WHOLE, typename Sum>
    __device__ __forceinline__ static void sinks(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                                 const Args& args) {
        constexpr bool HAS_ROWS = !Shape::SWAPPED && PRODUCTS == 1;
        static_assert(Program::SINKS == 0 || HAS_ROWS, "a thread has columns of few rows, of one product");
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
    __device__ __forceinline__ static void sums_of(Sum (&part)[PRODUCTS][8], const Sum* const (&sum)[PRODUCTS],
                                                   int piece, const FragmentCells<Shape::SWAPPED, WHOLE>& cells,
                                                   const ProductTiles<Program>& tile, const Args& args) {
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p)
#pragma unroll
            for (int i = 0; i < 8; ++i) part[p][i] = sum[p][8 * piece + i];
        if (SPAN == Span::ROWS && !SEGMENTS && !WHOLE)
            clear_beyond<FragmentCells<Shape::SWAPPED, WHOLE>>(part, cells.row, tile.span.live_rows(args));
    }
    __device__ __forceinline__ void wait_for_buffer() {
        turn ^= 1;
        if (threadIdx.x % 128 == 0) bulk_wait_read<1>();
        bar_sync(barrier, 128);
    }
    template <bool WHOLE, int PIECES, typename Sum>
    __device__ __forceinline__ void at_once(const Sum* const (&sum)[PRODUCTS], int row, int column,
                                            const ProductTiles<Program>& tile, const Args& args, unsigned buffer) {
        FragmentPacks<Program, FragmentCells<Shape::SWAPPED, WHOLE>> packs[PIECES];
        Sum parts[PIECES][PRODUCTS][8];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            read_fragment(packs[piece], cells, args);
            sums_of<WHOLE>(parts[piece], sum, piece, cells, tile, args);
        }
        compute_fragments<Program>(packs, parts, args);
        if (STAGED) wait_for_buffer();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            const auto result = store_fragment<Program, STAGED>(packs[piece], cells, args);
            if constexpr (STAGED) into_buffer(buffer, piece, threadIdx.x % 128, result);
        }
    }
    template <bool WHOLE, int PIECES, typename Sum>
    __device__ __forceinline__ void one_by_one(const Sum* const (&sum)[PRODUCTS], int row, int column,
                                               const ProductTiles<Program>& tile, const Args& args, unsigned buffer) {
        if (STAGED) wait_for_buffer();
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            const auto cells = cells_of<WHOLE>(piece, row, column, tile, args);
            Sum part[1][PRODUCTS][8];
            sums_of<WHOLE>(part[0], sum, piece, cells, tile, args);
            const auto result = finish<Program, STAGED>(part, cells, args);
            if constexpr (STAGED) into_buffer(buffer, piece, threadIdx.x % 128, result);
        }
    }
    template <bool WHOLE, int PIECES, typename Sum>
    __device__ __forceinline__ void pieces(const Sum* const (&sum)[PRODUCTS], int row, int column,
                                           const ProductTiles<Program>& tile, const Args& args) {
        constexpr bool BOXED = WHOLE || !ROW_SEGMENTS;  // boxes end where the array does
        const int thread = threadIdx.x % 128;
        const unsigned buffer = results + turn * Shape::RESULT;
        if constexpr (READ_AHEAD) at_once<WHOLE, PIECES>(sum, row, column, tile, args, buffer);
        else one_by_one<WHOLE, PIECES>(sum, row, column, tile, args, buffer);
        if (!STAGED) return;
        if (BOXED) fence_proxy_async_shared();
        bar_sync(barrier, 128);
        if (!BOXED)
            store_rows(buffer, Shape::SWAPPED ? column : row, Shape::SWAPPED ? row : column, tile.span.last_row(args),
                       args);
#if BARACUDA_TMA
        if (BOXED && thread == 0) store_box(buffer, row, column, tile, args);
#endif
        if (!BOXED && thread == 0) bulk_commit();  // every turn has a group that is waited for
    }
    // Stores what a buffer has of the rows before `rows`; its first element is of row `r` and column `c`.
    __device__ __forceinline__ static void store_rows(unsigned buffer, int r, int c, long long rows, const Args& args) {
        constexpr int HIGH = Shape::SWAPPED ? Shape::BLOCK_N : 64, CHUNKS = 128 / 16, EACH = 16 / int(sizeof(Element));
        const long long* const stride = args.stride[Factors<Program>::Result::OPERAND];
        Element* const to = (args.*Factors<Program>::RESULT_ARRAY).data + r * stride[1] + c;
#pragma unroll
        for (int i = int(threadIdx.x) % 128; i < HIGH * CHUNKS; i += 128) {
            const int row = i / CHUNKS, chunk = i % CHUNKS;
            if (r + row >= rows || c + chunk * EACH >= args.columns) continue;
            float four[4];
            load_shared_4(four, buffer + row * 128 + ((chunk ^ row % 8) << 4));
            *reinterpret_cast<float4*>(to + row * stride[1] + chunk * EACH) = {four[0], four[1], four[2], four[3]};
        }
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
    __device__ __forceinline__ static void clear_beyond(Sum (&part)[PRODUCTS][8], long long r, long long live) {
#pragma unroll
        for (int i = 0; i < PRODUCTS * 8; ++i)
            if (r + Cells::row_of(i % 8 / 2) + (Shape::SWAPPED ? i % 2 : 0) >= live) part[i / 8][i % 8] = Sum(0);
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
