// Blocks that run at the same time and see each other's shared memory. sm_90 on.
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

namespace baracuda {

// Which block of its cluster this is; blocks of one cluster are neighbours in the grid.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of all blocks get here before any goes on, and see what the others wrote before. No block may look at
// another's memory before the first such barrier, nor end while another may still look at its own.
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The place in block `rank` of what this block has at `shared`.
__device__ __forceinline__ unsigned address_in_block(unsigned shared, unsigned rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}

// Writes to the variable of block `rank` that this block has at `shared`; that block's `barrier` counts the bytes.
__device__ __forceinline__ void send_to_block(float* shared, unsigned rank, float value, Barrier barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     address_in_block(shared_address(shared), rank)),
                 "r"(__float_as_uint(value)), "r"(address_in_block(barrier.address, rank))
                 : "memory");
}
__device__ __forceinline__ void send_to_block(double* shared, unsigned rank, double value, Barrier barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     address_in_block(shared_address(shared), rank)),
                 "l"(__double_as_longlong(value)), "r"(address_in_block(barrier.address, rank))
                 : "memory");
}

}  // namespace baracuda
