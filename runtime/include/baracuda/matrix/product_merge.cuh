// Adds up the sums that another kernel has left of parts of the depth, in the order of the parts, and makes results of
// them.
//
// warp -> 16 x 16 cells of the result at a time
#pragma once

#include <baracuda/warp.cuh>

namespace baracuda {

template <class Program> __device__ constexpr int blocks_per_sm() { return 1; }

template <class Program> __device__ __forceinline__ void walk(const typename Program::Args& args) {
    static_assert(PRODUCTS == 1 && !HAS_SINKS<Program>, "cells are of one sum each");
    using Cells = FragmentCells<false, false>;
    using A = acc_of<Element>;
    constexpr int SIDE = 16, WARPS = Schedule::THREADS / WARP;
    const SumsOfParts<A, typename Program::Args> of(args);
    const long long down = (args.rows + SIDE - 1) / SIDE, across = (args.columns + SIDE - 1) / SIDE;
    const int lane = threadIdx.x % WARP;
    for (long long index = (long long)blockIdx.x * WARPS + threadIdx.x / WARP; index < args.batch * down * across;
         index += (long long)gridDim.x * WARPS) {
        const long long band = index / across, matrix = band / down;
        const long long row = band % down * SIDE + lane / 4, column = index % across * SIDE + lane % 4 * 2;
        A sum[1][1][8];
#pragma unroll 4
        for (long long part = 0; part < args.split; ++part) {
            const Cells cells = {matrix * args.split + part, row, column, args.rows, args.columns};
            Pack<A, 2> pack[Cells::PAIRS];
            cells.read_matrix(pack, of.data, of.stride);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const A value = pack[i / 2].lane[i % 2];
                sum[0][0][i] = part > 0 ? sum[0][0][i] + value : value;
            }
        }
        finish<Program, false>(sum, Cells{matrix, row, column, args.rows, args.columns}, args);
    }
}

}  // namespace baracuda
