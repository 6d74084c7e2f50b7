// Named barriers among some warps of a block. There are 16; number 0 is that of __syncthreads().
#pragma once

namespace baracuda {

// Waits until `threads` threads, whole warps of the block, have come to barrier `id` through either function. What each
// of them wrote before is then visible to those that wait; a thread that only arrives goes on at once.
#ifdef BARACUDA_HOST
inline void bar_sync(unsigned id, unsigned threads, BARACUDA_SITE) {
    baracuda_host::barrier_sync(id, threads, BARACUDA_SITE_ARGS);
}
inline void bar_arrive(unsigned id, unsigned threads, BARACUDA_SITE) {
    baracuda_host::barrier_arrive(id, threads, BARACUDA_SITE_ARGS);
}
#else
__device__ __forceinline__ void bar_sync(unsigned id, unsigned threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(unsigned id, unsigned threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
#endif

}  // namespace baracuda
