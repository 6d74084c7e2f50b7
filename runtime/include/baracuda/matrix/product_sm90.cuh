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

#include <baracuda/matrix/mainloop_sm90.cuh>
#include <baracuda/matrix/producer_sm90.cuh>
#include <baracuda/shared.cuh>

namespace baracuda {

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
