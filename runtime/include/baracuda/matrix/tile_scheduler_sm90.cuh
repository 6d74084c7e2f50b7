// The tiles of a product for sm_90a: their shape, their place in shared memory, and the order in which blocks take them
// (see product_sm90.cuh).
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

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
        count = each * span.count(args);
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
        return has_any ? span.first_term(args) : beyond;
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

}  // namespace baracuda
