// Thread block clusters: blocks that run at the same time and access each other's shared memory. sm_90 on.
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

namespace baracuda {

#ifdef BARACUDA_HOST
inline unsigned cluster_rank() { return baracuda_host::cluster_rank(); }
inline void cluster_arrive(BARACUDA_SITE) { baracuda_host::cluster_arrive(BARACUDA_HERE); }
inline void cluster_wait(BARACUDA_SITE) { baracuda_host::cluster_wait(BARACUDA_HERE); }
inline void cluster_sync(BARACUDA_SITE) {
    cluster_arrive(BARACUDA_SITE_ARGS);
    cluster_wait(BARACUDA_SITE_ARGS);
}
inline unsigned mapped_address(unsigned shared, unsigned rank, BARACUDA_SITE) {
    return baracuda_host::mapped_address(shared, rank, BARACUDA_HERE);
}
template <typename T> inline void store_async(T* shared, unsigned rank, T value, Barrier barrier, BARACUDA_SITE) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "st.async sends 4 or 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    baracuda_host::store_async(mapped_address(shared_address(shared), rank, BARACUDA_SITE_ARGS), bits, sizeof value,
                               mapped_address(barrier.address, rank, BARACUDA_SITE_ARGS), BARACUDA_HERE);
}
#else
// The rank of this block in its cluster; blocks of a cluster are neighbours in the grid.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of the cluster, with release and acquire. No block may access another's memory before the
// first one, nor end while another may still access its own.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
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
#endif

}  // namespace baracuda
