// A word in global memory by which blocks tell each other that something is there.
#pragma once

namespace baracuda {

// What the block that stored the word wrote before is there for what follows.
#ifdef BARACUDA_HOST
inline int load_acquire(const int* flag) { return baracuda_host::load_acquire(flag); }
inline void store_release(int* flag, int value) { baracuda_host::store_release(flag, value); }
#else
__device__ __forceinline__ int load_acquire(const int* flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}
__device__ __forceinline__ void store_release(int* flag, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
#endif

}  // namespace baracuda
