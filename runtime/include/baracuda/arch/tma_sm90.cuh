// TMA: one thread issues the copy of a box of a tensor into shared memory. sm_90 on.
#pragma once

#include <baracuda/arch/barrier_sm90.cuh>

namespace baracuda {

// CUtensorMap, made by the host; a kernel takes it in a parameter that is __grid_constant__.
struct TensorMap {
    alignas(64) unsigned long long words[16];
};

// L2 eviction policies of a copy: for lines read once, and for lines that other blocks read again.
constexpr unsigned long long EVICT_FIRST = 0x12F0000000000000ull, EVICT_LAST = 0x14F0000000000000ull;

// Copies the map's box at element (column, row, head, batch) to the shared address `to`. What lies beyond the tensor's
// edges becomes zero, and all bytes of the box arrive at `barrier`, those zeros included.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, Barrier barrier, int column, int row,
                                         int head, int batch, unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(barrier.address), "l"(policy)
        : "memory");
}

// Copies `bytes`, a multiple of 16, from a multiple of 16 in memory to one in shared memory; they arrive at `barrier`.
__device__ __forceinline__ void load_bytes(unsigned to, const void* from, unsigned bytes, Barrier barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier.address)
                 : "memory");
}

}  // namespace baracuda
