// TMA: one thread issues the copy of a box of a tensor into shared memory. sm_90 on.
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

namespace baracuda {

// CUtensorMap, made by the host; a kernel takes it in a parameter that is __grid_constant__.
struct TensorMap {
    alignas(64) unsigned long long words[16];
};

// L2 eviction policies of a copy: for lines read once, for lines that other blocks read again, and the usual one.
constexpr unsigned long long EVICT_FIRST = 0x12F0000000000000ull, EVICT_LAST = 0x14F0000000000000ull;
constexpr unsigned long long EVICT_NORMAL = 0x1000000000000000ull;

// The element of a map's tensor at which a box begins.
struct BoxStart {
    int column, row, head, batch;
};

// Copies the map's box that begins at `start` to the shared address `to`. What lies beyond the tensor's edges becomes
// zero, and all bytes of the box arrive at `barrier`, those zeros included.
#ifdef BARACUDA_HOST
inline void load_box(unsigned to, const TensorMap& map, Barrier barrier, BoxStart start, unsigned long long,
                     BARACUDA_SITE) {
    baracuda_host::bulk_load_box(to, {&map, {start.column, start.row, start.head, start.batch}, 4}, barrier.address, 0,
                                 BARACUDA_HERE);
}
#else
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, Barrier barrier, BoxStart start,
                                         unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
        "l"(&map), "r"(start.column), "r"(start.row), "r"(start.head), "r"(start.batch), "r"(barrier.address),
        "l"(policy)
        : "memory");
}
#endif

// Copies `bytes`, a multiple of 16, from a multiple of 16 in memory to one in shared memory; they arrive at `barrier`.
#ifdef BARACUDA_HOST
inline void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier barrier, BARACUDA_SITE) {
    baracuda_host::bulk_load(to, from, bytes, barrier.address, 0, BARACUDA_HERE);
}
#else
__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier.address)
                 : "memory");
}
#endif

// Stores `bytes` of shared memory to global memory, or adds floats to those there; both addresses and `bytes` are
// multiples of 16. A thread's copies since its last commit become a group; it waits for all but the PENDING committed
// last, `_read` only until they have read their source.
#ifdef BARACUDA_HOST
inline void store_bytes(void* to, unsigned from, unsigned bytes, BARACUDA_SITE) {
    baracuda_host::bulk_store(to, from, bytes, baracuda_host::Update::Store, baracuda_host::Number::F32, BARACUDA_HERE);
}
inline void add_bytes(float* to, unsigned from, unsigned bytes, BARACUDA_SITE) {
    baracuda_host::bulk_store(to, from, bytes, baracuda_host::Update::Add, baracuda_host::Number::F32, BARACUDA_HERE);
}
inline void bulk_commit() { baracuda_host::bulk_commit(); }
template <int PENDING> inline void bulk_wait() { baracuda_host::bulk_wait(PENDING, false); }
template <int PENDING> inline void bulk_wait_read() { baracuda_host::bulk_wait(PENDING, true); }
#else
__device__ __forceinline__ void store_bytes(void* to, unsigned from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void add_bytes(float* to, unsigned from, unsigned bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}
template <int PENDING> __device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
#endif

}  // namespace baracuda
