// Thread block clusters: blocks that run at the same time and access each other's shared memory. sm_90 on.
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

namespace baracuda {

// The rank of this block in its cluster; blocks of a cluster are neighbours in the grid.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of the cluster, with release and acquire. No block may access another's memory before the
// first one, nor end while another may still access its own.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in block `rank` of what this block has at `shared` (mapa).
__device__ __forceinline__ unsigned mapped_address(unsigned shared, unsigned rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}

// Writes to the variable of block `rank` that this block has at `shared`; that block's `barrier` counts the bytes.
__device__ __forceinline__ void store_async(float* shared, unsigned rank, float value, Barrier barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     mapped_address(shared_address(shared), rank)),
                 "r"(__float_as_uint(value)), "r"(mapped_address(barrier.address, rank))
                 : "memory");
}
__device__ __forceinline__ void store_async(double* shared, unsigned rank, double value, Barrier barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
                     mapped_address(shared_address(shared), rank)),
                 "l"(__double_as_longlong(value)), "r"(mapped_address(barrier.address, rank))
                 : "memory");
}

}  // namespace baracuda
