// Programmatic dependent launch, and cp.async: asynchronous copies from global to shared memory. A thread waits for its
// own copies only; other threads see them after a barrier that follows the wait.
#pragma once

namespace baracuda {

// A dependent grid may start once all blocks of the grid before have called `launch_dependent_grids` or ended; it must
// call `wait_on_dependent_grids` before it accesses what that grid writes. Without such a launch, and before sm_90,
// both do nothing.
__device__ __forceinline__ void launch_dependent_grids() {
#if !defined(BARACUDA_HOST) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_on_dependent_grids() {
#ifdef BARACUDA_HOST
    baracuda_host::wait_on_dependent_grids();
#endif
#if !defined(BARACUDA_HOST) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The first `source_bytes` bytes are copied and the rest become zero; both addresses are multiples of the size. `ca`
// caches the lines in L1 and L2, `cg`, always of 16 bytes, in L2 only.
#ifdef BARACUDA_HOST
template <int BYTES> inline void cp_async_ca(void* shared, const void* global, int source_bytes = BYTES,
                                             BARACUDA_SITE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    baracuda_host::cp_async(shared, global, BYTES, source_bytes, BARACUDA_SITE_ARGS);
}
inline void cp_async_cg(void* shared, const void* global, int source_bytes = 16, BARACUDA_SITE) {
    baracuda_host::cp_async(shared, global, 16, source_bytes, BARACUDA_SITE_ARGS);
}
#else
template <int BYTES, int ARCH = __CUDA_ARCH__>
__device__ __forceinline__ void cp_async_ca(void* shared, const void* global, int source_bytes = BYTES) {
    static_assert(ARCH >= 800, "cp.async needs sm_80");
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async.ca copies 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
                 "l"(global), "n"(BYTES), "r"(source_bytes)
                 : "memory");
}
template <int ARCH = __CUDA_ARCH__>
__device__ __forceinline__ void cp_async_cg(void* shared, const void* global, int source_bytes = 16) {
    static_assert(ARCH >= 800, "cp.async needs sm_80");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
                 "l"(global), "r"(source_bytes)
                 : "memory");
}
#endif

// The thread's copies since its last commit become a group, perhaps an empty one.
__device__ __forceinline__ void cp_async_commit_group() {
#ifdef BARACUDA_HOST
    baracuda_host::cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of the thread's groups but the `PENDING` that it committed last.
template <int PENDING> __device__ __forceinline__ void cp_async_wait_group() {
#ifdef BARACUDA_HOST
    baracuda_host::cp_async_wait(PENDING);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Waits for all of the thread's copies, committed or not.
__device__ __forceinline__ void cp_async_wait_all() {
#ifdef BARACUDA_HOST
    baracuda_host::cp_async_commit();
    baracuda_host::cp_async_wait(0);
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace baracuda
