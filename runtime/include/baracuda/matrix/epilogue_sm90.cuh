// The epilogue of a consumer's warpgroup: makes results of the sums in its registers and stores them (see
// product_sm90.cuh).
#pragma once

#include <baracuda/arch/barrier.cuh>
#include <baracuda/arch/shared_address.cuh>
#include <baracuda/arch/tiles_sm90.cuh>
#include <baracuda/matrix/tile_scheduler_sm90.cuh>

namespace baracuda {

// What a warpgroup has of a tile becomes results. STAGED: they go through shared memory, 64 columns of the tile at a
// time, or with SWAPPED its 64 rows, in two buffers.
template <class Program> struct ProductStore {
    using Shape = ProductShape;
    using Args = typename Program::Args;
    using Element = typename Factors<Program>::Result::element_t;
    static constexpr bool STAGED = BARACUDA_STAGED;
    static_assert(!STAGED || sizeof(Element) == 2, "panels are of 16-bit elements");
    // Whether a thread reads all for a panel before it makes anything of it: as much as registers hold.
    static constexpr bool READ_AHEAD =
        SPLIT == Split::NONE && PRODUCTS == 1 && ARRAYS_READ<Program> > 0 && FRAGMENT_REGISTERS<Program> <= 16;
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
        if constexpr (HAS_SINKS<Program>) {
            if (row + 64 <= down && column + PART <= along) sinks<true>(sum[0], row, column, tile, args);
            else sinks<false>(sum[0], row, column, tile, args);
        } else {
            if (row + 64 <= down && column + 16 * PIECES <= along) pieces<true, PIECES>(sum, row, column, tile, args);
            else pieces<false, PIECES>(sum, row, column, tile, args);
        }
    }

private:
    template <bool WHOLE, typename Sum>
    __device__ __forceinline__ void sinks(const Sum* sum, int row, int column, const ProductTiles<Program>& tile,
                                          const Args& args) {
        constexpr bool HAS_ROWS = !Shape::SWAPPED && PRODUCTS == 1;
        static_assert(!HAS_SINKS<Program> || HAS_ROWS, "a thread has columns of few rows, of one product");
        const unsigned buffer = results + turn * Shape::RESULT;
        if (STAGED) wait_for_buffer();
        Sum parts[2][2][8];
        FragmentCells<Shape::SWAPPED, WHOLE> cells[2][2];
#pragma unroll
        for (int piece = 0; piece < PART / 16; ++piece) {
            cells[piece / 2][piece % 2] = cells_of<WHOLE>(piece, row, column, tile, args);
#pragma unroll
            for (int i = 0; i < 8; ++i) parts[piece / 2][piece % 2][i] = sum[8 * piece + i];
        }
        reduce_part<Program>(parts, cells, args, [&](const auto& packs, int half) {
#pragma unroll
            for (int f = 0; f < 2; ++f) keep(packs[f], cells[half][f], 2 * half + f, args, buffer);
        });
        if (STAGED) store_buffer<WHOLE>(buffer, row, column, tile, args);
    }
    // Stores what is made of 16 columns of the tile, or leaves the result to the buffer.
    template <class P, class Cells>
    __device__ __forceinline__ static void keep(const P& packs, const Cells& cells, int piece, const Args& args,
                                                unsigned buffer) {
        store_fragment<Program, STAGED>(packs, cells, args);
        if constexpr (STAGED) into_buffer(buffer, piece, threadIdx.x % 128, result_of<Program, Cells>(packs));
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
            keep(packs[piece], cells, piece, args, buffer);
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
            if constexpr (STAGED)
                into_buffer(buffer, piece, threadIdx.x % 128, finish<Program, true>(part, cells, args));
            else finish<Program, false>(part, cells, args);
        }
    }
    template <bool WHOLE, int PIECES, typename Sum>
    __device__ __forceinline__ void pieces(const Sum* const (&sum)[PRODUCTS], int row, int column,
                                           const ProductTiles<Program>& tile, const Args& args) {
        const unsigned buffer = results + turn * Shape::RESULT;
        if constexpr (READ_AHEAD) at_once<WHOLE, PIECES>(sum, row, column, tile, args, buffer);
        else one_by_one<WHOLE, PIECES>(sum, row, column, tile, args, buffer);
        if (STAGED) store_buffer<WHOLE>(buffer, row, column, tile, args);
    }
    // Stores what all threads have left to a buffer.
    template <bool WHOLE>
    __device__ __forceinline__ void store_buffer(unsigned buffer, int row, int column,
                                                 const ProductTiles<Program>& tile, const Args& args) {
        constexpr bool BOXED = WHOLE || !ROW_SEGMENTS;  // boxes end where the array does
        const int thread = threadIdx.x % 128;
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

}  // namespace baracuda
