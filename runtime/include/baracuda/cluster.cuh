// Blocks that run at the same time and see each other's shared memory. sm_90 on.
#pragma once

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

// Writes to the variable of block `rank` that this block has at `shared`.
__device__ __forceinline__ unsigned address_in_block(const void* shared, unsigned rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(unsigned(__cvta_generic_to_shared(shared))), "r"(rank));
    return address;
}
__device__ __forceinline__ void store_in_block(float* shared, unsigned rank, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in_block(shared, rank)), "f"(value) : "memory");
}
__device__ __forceinline__ void store_in_block(double* shared, unsigned rank, double value) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address_in_block(shared, rank)), "d"(value) : "memory");
}

}  // namespace baracuda
