// Matrix products by mma.sync, for halves, float (as three tf32 products, or ROUNDED to one), double and 8-bit factors
// alike, from sm_80 on.
//
// block -> tiles of the result, one after the other; warp -> a part of the tile, in registers
//
// Factors go through shared memory in a ring of STAGES buffers of BLOCK_K of the depth; cp.async fills them, or where
// arrays are strided, the threads. Every sum adds its terms in the order of the depth, whatever the tile.
#pragma once

#include <baracuda/matrix/mma_bytes.cuh>
#include <baracuda/matrix/mma_tile.cuh>
#include <baracuda/shared.cuh>

namespace baracuda {

// A factor as [sides, depth]: rows of the left, columns of the right one. SIDE: sides are contiguous, not the depth.
template <typename T, bool SIDE, int SIDES, int DEPTH> struct Factor {
    using Tile = SharedTile<T, SIDE ? DEPTH : SIDES, SIDE ? SIDES : DEPTH>;
    static constexpr int SIZE = SIDES * DEPTH;
    const T* data;
    long long side_stride, depth_stride, sides, depth;

    __device__ const T* at(long long side, long long place) const {
        return data + side * side_stride + place * depth_stride;
    }
    // What begins at (side, at) of the factor, zeros beyond its edges.
    template <int THREADS, bool PACKED> __device__ __forceinline__ void copy(T* to, long long side,
                                                                             long long at) const {
        const T* const from = this->at(side, at);
        const Tile tile = {to};
        if constexpr (PACKED) {
            if (SIDE) copy_rows<THREADS, true>(tile, from, depth_stride, depth - at, sides - side);
            else copy_rows<THREADS, true>(tile, from, side_stride, sides - side, depth - at);
        } else {
            for (int i = threadIdx.x; i < SIZE; i += THREADS) {
                const int s = SIDE ? i % SIDES : i / DEPTH, d = SIDE ? i / SIDES : i % DEPTH;
                const bool inside = s < sides - side && d < depth - at;
                *(SIDE ? tile.at(d, s) : tile.at(s, d)) = inside ? from[s * side_stride + d * depth_stride] : T{};
            }
        }
    }
};

// The instructions for factors of these types; those of 8 bits may differ.
template <typename L, typename R, bool WHOLE, bool BYTES = sizeof(L) == 1> struct MmaOf : MmaFor<L, WHOLE> {};
template <typename L, typename R, bool WHOLE> struct MmaOf<L, R, WHOLE, true> {
    using type = MmaBytes<L, R>;
};
template <bool WHOLE> struct MmaOf<float, float, WHOLE, false> {
    using type = MmaFloat<typename Choice<ROUNDED, RoundedFloats, SplitFloats>::type>;
};

template <class Program> struct ProductTile {
    using Of = Factors<Program>;
    using T = FactorOf<Program, true>;
    using OfRight = FactorOf<Program, false>;
    using Args = typename Program::Args;
    static constexpr int BLOCK_M = Schedule::BLOCK_M, BLOCK_N = Schedule::BLOCK_N, BLOCK_K = Schedule::BLOCK_K;
    static constexpr int STAGES = Schedule::STAGES, THREADS = Schedule::THREADS, ACROSS = Schedule::ACROSS;
    using Multiply = typename MmaOf<T, OfRight, !LEFT_SIDE>::type;
    using Number = typename Multiply::Number;          // that sums are
    static constexpr int BESIDE = BLOCK_N / PRODUCTS;  // columns of the result that a tile has
    using Left = Factor<T, LEFT_SIDE, BLOCK_M, BLOCK_K>;
    using Right = Factor<OfRight, RIGHT_SIDE, BESIDE, BLOCK_K>;
    static constexpr int ROWS = BLOCK_M / (THREADS / 32 / ACROSS), COLUMNS = BESIDE / ACROSS;  // of a warp
    static constexpr int TALL = ROWS / Multiply::ROWS, WIDE = COLUMNS / 16;
    static_assert(ROWS % Multiply::ROWS == 0 && COLUMNS % 16 == 0 && BLOCK_K % Multiply::DEPTH == 0, "whole products");
    static constexpr int STAGE = Left::SIZE + PRODUCTS * Right::SIZE;

    static_assert(sizeof(T) == sizeof(OfRight), "buffers are of both");

    T* shared;
    typename Multiply::Sum sum[PRODUCTS][TALL][2 * WIDE];  // with weights, of a part
    // With weights, of all parts.
    typename Multiply::Sum total[WEIGHTED ? TALL : 1][WEIGHTED ? 2 * WIDE : 1];
    static constexpr int BLOCKS = WEIGHTED_PART / BLOCK_K;  // of a part

    __device__ __forceinline__ void load(const Left& left, const Right (&right)[PRODUCTS], long long row,
                                         long long column, int block) {
        T* const to = shared + block % STAGES * STAGE;
        left.template copy<THREADS, !STRIDED>(to, row, (long long)block * BLOCK_K);
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p)
            right[p].template copy<THREADS, !STRIDED>(reinterpret_cast<OfRight*>(to + Left::SIZE + p * Right::SIZE),
                                                      column, (long long)block * BLOCK_K);
    }
    __device__ __forceinline__ void multiply(int block, int first_row, int first_column) {
        const typename Left::Tile of_left = {shared + block % STAGES * STAGE};
        const int lane = opaque(threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += Multiply::DEPTH) {
            typename Multiply::Left left[TALL];
#pragma unroll
            for (int i = 0; i < TALL; ++i) {
                const int m = first_row + i * Multiply::ROWS;
                if constexpr (LEFT_SIDE) left[i] = Multiply::left_transposed(of_left, m, k, lane);
                else left[i] = Multiply::left(of_left, m, k, lane);
            }
#pragma unroll
            for (int p = 0; p < PRODUCTS; ++p) {
                using Tile = typename Right::Tile;
                const Tile of_right = {reinterpret_cast<OfRight*>(of_left.data + Left::SIZE + p * Right::SIZE)};
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const int n = first_column + 16 * j;
                    typename Multiply::Right right;
                    if constexpr (RIGHT_SIDE) right = Multiply::right(of_right, k, n, lane);
                    else right = Multiply::right_transposed(of_right, k, n, lane);
#pragma unroll
                    for (int i = 0; i < TALL; ++i) Multiply::multiply(sum[p][i] + 2 * j, left[i], right);
                }
            }
        }
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p)
#pragma unroll
            for (int i = 0; i < TALL; ++i)
#pragma unroll
                for (int j = 0; j < 2 * WIDE; ++j) sum[p][i][j] = {};
    }
    __device__ __forceinline__ const auto& all(int product) const {
        if constexpr (WEIGHTED) return total;
        else return sum[product];
    }
    // Adds a part of the depth, times its weights.
    template <class Weights> __device__ __forceinline__ void add_part(const Weights& weights, const Args& args) {
        static_assert(!WEIGHTED || PRODUCTS == 1, "a pair has no weights");
#pragma unroll
        for (int t = 0; t < TALL; ++t)
            weights.each(args, t, [&](int i, float weight) {
                float& value = total[t][i / 4].value[i % 4];
                value = math::fma(Multiply::unscaled(sum[0][t][i / 4].value[i % 4]), weight, value);
            });
    }

    // All terms of a tile. The barrier of a step says that its buffer is full, and that of the step before free.
    __device__ __forceinline__ void add(const Left& left, const Right (&right)[PRODUCTS], long long matrix,
                                        long long row, long long column, int first_row, int first_column,
                                        const Args& args) {
        const int blocks = int((left.depth + BLOCK_K - 1) / BLOCK_K);
        clear();
        WeightsOf<Program, PartShape<false, 16, TALL, COLUMNS, ROW_SEGMENTS>> weights;
        [[maybe_unused]] const long long across = column + first_column + Multiply::col(0);
        if constexpr (WEIGHTED) {
            if (blocks > 0) weights.seek(args, matrix, row + first_row + Multiply::row(0), across);
            static_assert(Multiply::ROWS == 16 && BLOCKS * BLOCK_K == WEIGHTED_PART, "parts are whole blocks");
#pragma unroll
            for (int i = 0; i < TALL; ++i)
#pragma unroll
                for (int j = 0; j < 2 * WIDE; ++j) total[i][j] = {};
        }
        for (int block = 0; block < STAGES - 1; ++block) {
            if (block < blocks) load(left, right, row, column, block);
            cp_async_commit_group();
        }
#pragma unroll 1
        for (int block = 0; block < blocks; ++block) {
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            if (block + STAGES - 1 < blocks) load(left, right, row, column, block + STAGES - 1);
            cp_async_commit_group();
            if constexpr (WEIGHTED) {
                if (block % BLOCKS == 0) weights.read(args, across, (long long)block * BLOCK_K);
            }
            multiply(block, first_row, first_column);
            if constexpr (WEIGHTED) {
                if (block % BLOCKS == BLOCKS - 1 || block == blocks - 1) {
                    weights.take(args);
                    add_part(weights, args);
                    clear();
                }
            }
        }
        __syncthreads();  // the next tile overwrites all buffers
    }

    // Two tf32 numbers hold no infinite float: products with one are NaN. A sum that is not finite is made once more of
    // its terms, one by one, which gives the infinity or NaN that they have.
    __device__ __forceinline__ static Number checked(Number sum, const Left& left, const Right& right, long long row,
                                                     long long column) {
        if constexpr (WEIGHTED) return sum;
        if constexpr (sizeof(T) == 1) return Multiply::unscaled(sum);
        if constexpr (sizeof(T) == 4 && !ROUNDED) {
            if (sum - sum != 0.0f) {
                sum = 0.0f;
                for (long long k = 0; k < left.depth; ++k) sum = math::fma(*left.at(row, k), *right.at(column, k), sum);
            }
        }
        return sum;
    }

    // The sums of a fragment of `cells`, of one product; `live`: the rows that have one.
    __device__ __forceinline__ void fragment(Number (&part)[8], int product, int i, int j, const Left& left,
                                             const Right& right, const FragmentCells<false, false>& cells,
                                             long long live) const {
        constexpr int TILES = 16 / Multiply::ROWS;  // of rows of sums that a fragment has
#pragma unroll
        for (int v = 0; v < 8; ++v) {
            const int down = v / 2 % 2, beside = 2 * j + v / 4;
            const auto& of = all(product);
            const Number value =
                TILES == 1 ? of[i][beside].value[down * 2 + v % 2] : of[2 * i + down][beside].value[v % 2];
            const long long of_row = cells.row + 8 * down, of_column = cells.column + v / 4 * 8 + v % 2;
            const bool exists = of_row < live && of_column < cells.columns;
            part[v] = exists ? checked(value, left, right, of_row, of_column) : Number(0);
        }
    }
    __device__ __forceinline__ void store(const Left& left, const Right (&right)[PRODUCTS], long long matrix,
                                          long long row, long long column, long long live, const Args& args) const {
        using Cells = FragmentCells<false, false>;
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
            const long long r = row + 16 * i + Multiply::row(0), first = column + Multiply::col(0);
            if constexpr (HAS_SINKS<Program>) {
                Number parts[WIDE][8];
                Cells cells[WIDE];
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    cells[j] = {matrix, r, first + 16 * j, left.sides, args.columns};
                    fragment(parts[j], 0, i, j, left, right[0], cells[j], live);
                }
                reduce(parts, cells, args);
            } else {
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const long long c = first + 16 * j;
                    if (r >= left.sides || c >= args.columns) continue;
                    Number part[1][PRODUCTS][8];
                    const Cells cells = {matrix, r, c, left.sides, args.columns};
#pragma unroll
                    for (int p = 0; p < PRODUCTS; ++p) fragment(part[0][p], p, i, j, left, right[p], cells, live);
                    finish<Program, false>(part, cells, args);
                }
            }
        }
    }

    // Two warps beside each other have a half of each part.
    template <class Cells>
    __device__ __forceinline__ void reduce(const Number (&parts)[WIDE][8], const Cells (&cells)[WIDE],
                                           const Args& args) const {
        static_assert(!HAS_SINKS<Program> || (COLUMNS * 2 == PART && ACROSS % 2 == 0), "a warp has the half of a part");
        RowSums<Program> reduced;
        reduce_phase<1>(reduced, parts, cells, args);
        if constexpr (Program::SINKS > 1) reduce_phase<2>(reduced, parts, cells, args);
        if constexpr (Program::SINKS > 0)
            if (threadIdx.x / 32 % 2 == 0 && cells[0].column < args.columns)
                store_part<Program>(reduced, cells[0], args);
    }
    template <int PHASE, class Cells>
    __device__ __forceinline__ void reduce_phase(RowSums<Program>& reduced, const Number (&parts)[WIDE][8],
                                                 const Cells (&cells)[WIDE], const Args& args) const {
        reduce_fragments<Program, PHASE>(reduced, parts, cells, args, [&](const auto& packs) {
#pragma unroll
            for (int j = 0; j < WIDE; ++j) store_fragment<Program, false>(packs[j], cells[j], args);
        });
        const bool is_first = threadIdx.x / 32 % 2 == 0;
        each_of_phase<Program, PHASE>(
            [&](auto& of) {
                using Monoid = decltype(monoid_of(of));
                auto* const exchange = reinterpret_cast<decltype(of.row)*>(shared);
                static_assert(sizeof(of.row) * THREADS <= STAGES * STAGE * sizeof(T), "buffers of factors are free");
                __syncthreads();
#pragma unroll
                for (int r = 0; r < 2; ++r) exchange[threadIdx.x][r] = of.row[r];
                __syncthreads();
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const auto own = of.row[r], other = exchange[threadIdx.x ^ 32][r];
                    of.row[r] = Monoid::combine(is_first ? own : other, is_first ? other : own);
                }
            },
            reduced);
        reduce_quad<Program, PHASE>(reduced);
    }
};

template <class Program> __device__ constexpr int blocks_per_sm() { return 1; }

template <class Program> __device__ __forceinline__ void walk(const typename Program::Args& args) {
    using Tile = ProductTile<Program>;
    using Of = Factors<Program>;
    using T = typename Tile::T;
    DYN_SHARED(T, shared);
    static_assert(reserves(Tile::STAGES * Tile::STAGE * sizeof(T)), "the launch reserves all buffers");
    constexpr int GROUP = 8;  // tiles of rows that are worked on together, to share columns in the L2 cache
    const long long columns = (args.columns + Tile::BESIDE - 1) / Tile::BESIDE;
    Spans<Program, long long> span(args);
    long long first = 0;  // tile of the matrix
    const int warp = threadIdx.x / 32, warp_row = warp / Tile::ACROSS * Tile::ROWS;
    const int warp_column = warp % Tile::ACROSS * Tile::COLUMNS;
    const long long* const left_stride = args.stride[Of::Left::OPERAND];
    Tile tile = {shared};
    for (long long index = blockIdx.x;; index += gridDim.x) {
        long long rows = (span.last_row(args) - span.first_row() + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
        if (ROW_SEGMENTS) {
            while (index >= first + rows * columns && span.matrix < args.batch) {
                first += rows * columns;
                span.seek(span.matrix + 1, args);
                rows = (span.last_row(args) - span.first_row() + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
            }
            if (index >= first + rows * columns) break;
        } else {
            if (index >= rows * columns * span.count(args)) break;
            span.seek(index / (rows * columns), args);
            first = span.matrix * rows * columns;
        }
        const long long matrix = span.matrix, place = index - first, band = place / (GROUP * columns);
        const long long high = min((long long)GROUP, rows - band * GROUP), within = place - band * GROUP * columns;
        const long long row = span.first_row() + (band * GROUP + within % high) * Tile::BLOCK_M;
        const long long column = within / high * Tile::BESIDE, term = span.first_term(args);
        const long long of_factors = span.of_factors(matrix, args);
        const long long terms = span.terms(row, args);
        const typename Tile::Left left = {
            (args.*Of::LEFT_ARRAY).data + of_factors * left_stride[0] + term * left_stride[2], left_stride[1],
            left_stride[2], span.last_row(args), terms};
        typename Tile::Right right[PRODUCTS];
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p) {
            const long long* const stride = args.stride[p ? Of::Second::OPERAND : Of::Right::OPERAND];
            const auto* data = (args.*Of::RIGHT_ARRAY).data;
            if constexpr (PRODUCTS > 1) data = p ? (args.*Of::SECOND_ARRAY).data : data;
            right[p] = {data + of_factors * stride[0] + term * stride[2], stride[1], stride[2], args.columns, terms};
        }
        tile.add(left, right, matrix, row, column, warp_row, warp_column, args);
        tile.store(left, right, matrix, row + warp_row, column + warp_column, span.live_rows(args), args);
        if (Program::SINKS > 0) __syncthreads();  // the next tile overwrites what warps exchange
    }
}

}  // namespace baracuda
