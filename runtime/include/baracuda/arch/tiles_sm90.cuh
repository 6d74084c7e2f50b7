// TMA for tiles of matrices: multicast to a cluster, stores, sums and prefetches. A tensor map has three axes here:
// columns, rows and matrices. sm_90 on.
#pragma once

#include <baracuda/arch/cluster_sm90.cuh>
#include <baracuda/arch/tma_sm90.cuh>
#include <baracuda/element.cuh>
#include <baracuda/warp.cuh>

namespace baracuda {

// How a copy changes the numbers that it finds.
enum class Combine { ADD, MIN, MAX, AND, OR, XOR };

#ifdef BARACUDA_HOST
inline void load_tile(unsigned to, const TensorMap& map, Barrier barrier, int column, int row, int matrix,
                      unsigned long long, BARACUDA_SITE) {
    baracuda_host::bulk_load_box(to, {&map, {column, row, matrix}, 3}, barrier.address, 0, BARACUDA_HERE);
}
inline void load_tile_to_blocks(unsigned to, const TensorMap& map, Barrier barrier, unsigned short blocks, int column,
                                int row, int matrix, unsigned long long, BARACUDA_SITE) {
    baracuda_host::bulk_load_box(to, {&map, {column, row, matrix}, 3}, barrier.address, blocks, BARACUDA_HERE);
}
inline void store_tile(const TensorMap& map, unsigned from, int column, int row, int matrix, BARACUDA_SITE) {
    baracuda_host::bulk_store_box({&map, {column, row, matrix}, 3}, from, baracuda_host::Update::Store, BARACUDA_HERE);
}
inline void add_tile(const TensorMap& map, unsigned from, int column, int row, int matrix, BARACUDA_SITE) {
    baracuda_host::bulk_store_box({&map, {column, row, matrix}, 3}, from, baracuda_host::Update::Add, BARACUDA_HERE);
}
inline void prefetch_tile(const TensorMap& map, int column, int row, int matrix, BARACUDA_SITE) {
    baracuda_host::bulk_prefetch_box({&map, {column, row, matrix}, 3}, BARACUDA_HERE);
}
inline void prefetch_map(const TensorMap& map, BARACUDA_SITE) { baracuda_host::prefetch_map(&map, BARACUDA_HERE); }
inline void prefetch_bytes(const void* from, unsigned bytes, BARACUDA_SITE) {
    baracuda_host::bulk_prefetch(from, bytes, BARACUDA_HERE);
}
inline bool elect_one(BARACUDA_SITE) { return baracuda_host::elect(ALL_LANES, BARACUDA_HERE); }
inline void arrive_at(Barrier barrier, unsigned rank, BARACUDA_SITE) {
    baracuda_host::mbarrier_arrive(mapped_address(barrier.address, rank, BARACUDA_SITE_ARGS), 0, BARACUDA_HERE);
}
#else
// Copies the map's box at (column, row, matrix) to the shared address `to`, where all its bytes arrive at `barrier`.
__device__ __forceinline__ void load_tile(unsigned to, const TensorMap& map, Barrier barrier, int column, int row,
                                          int matrix, unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(barrier.address), "l"(policy)
        : "memory");
}

// To each block of the cluster whose bit of `blocks` is set: to its own `to`, and its own `barrier` counts the bytes.
__device__ __forceinline__ void load_tile_to_blocks(unsigned to, const TensorMap& map, Barrier barrier,
                                                    unsigned short blocks, int column, int row, int matrix,
                                                    unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(barrier.address), "h"(blocks), "l"(policy)
        : "memory");
}

// Stores the box from shared memory, or adds it to what is there, but for what lies beyond the edges. Waited for as
// `store_bytes` is.
__device__ __forceinline__ void store_tile(const TensorMap& map, unsigned from, int column, int row, int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(column), "r"(row), "r"(matrix), "r"(from)
                 : "memory");
}
__device__ __forceinline__ void add_tile(const TensorMap& map, unsigned from, int column, int row, int matrix) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
        "r"(column), "r"(row), "r"(matrix), "r"(from)
        : "memory");
}

// Brings a box, a tensor map or bytes (multiples of 16) to the L2 cache or the cache of tensor maps.
__device__ __forceinline__ void prefetch_tile(const TensorMap& map, int column, int row, int matrix) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(&map), "r"(column), "r"(row),
                 "r"(matrix)
                 : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ __forceinline__ void prefetch_bytes(const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// True in one lane of the whole warp, always the same.
__device__ __forceinline__ bool elect_one() {
    unsigned won;
    asm volatile("{\n.reg .pred won;\nelect.sync _|won, %1;\nselp.u32 %0, 1, 0, won;\n}\n"
                 : "=r"(won)
                 : "r"(ALL_LANES)
                 : "memory");
    return won;
}

// Arrives at the barrier of block `rank` that this block has at `barrier`. It orders what this thread has read from
// shared memory, not what it wrote to memory for that block: a release of the cluster costs a fence of the whole
// device.
__device__ __forceinline__ void arrive_at(Barrier barrier, unsigned rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped_address(barrier.address, rank))
                 : "memory");
}
#endif

// X(operation, type, PTX, and the host device's names)
#define BARACUDA_COMBINES(X)                  \
    X(ADD, unsigned, "add.u32", Add, U32)     \
    X(MIN, unsigned, "min.u32", Min, U32)     \
    X(MAX, unsigned, "max.u32", Max, U32)     \
    X(AND, unsigned, "and.b32", And, U32)     \
    X(OR, unsigned, "or.b32", Or, U32)        \
    X(XOR, unsigned, "xor.b32", Xor, U32)     \
    X(ADD, int, "add.s32", Add, S32)          \
    X(MIN, int, "min.s32", Min, S32)          \
    X(MAX, int, "max.s32", Max, S32)          \
    X(ADD, u64, "add.u64", Add, U64)          \
    X(ADD, f16, "add.noftz.f16", Add, F16)    \
    X(MIN, f16, "min.f16", Min, F16)          \
    X(MAX, f16, "max.f16", Max, F16)          \
    X(ADD, bf16, "add.noftz.bf16", Add, BF16) \
    X(MIN, bf16, "min.bf16", Min, BF16)       \
    X(MAX, bf16, "max.bf16", Max, BF16)       \
    X(ADD, float, "add.f32", Add, F32)        \
    X(ADD, double, "add.f64", Add, F64)

// Combines `bytes` of shared memory with numbers in global memory, each by itself; halves round to nearest even.
// Addresses and `bytes` are multiples of 16. Waited for as `store_bytes` is.
template <Combine HOW, typename T> struct Combining;
#ifdef BARACUDA_HOST
#define BARACUDA_COMBINE(how, T, text, update, number)                                                               \
    template <> struct Combining<Combine::how, T> {                                                                  \
        static void bytes(T* to, unsigned from, unsigned bytes, BARACUDA_SITE) {                                     \
            baracuda_host::bulk_store(to, from, bytes, baracuda_host::Update::update, baracuda_host::Number::number, \
                                      BARACUDA_HERE);                                                                \
        }                                                                                                            \
    };
#else
#define BARACUDA_COMBINE(how, T, text, update, number)                                                            \
    template <> struct Combining<Combine::how, T> {                                                               \
        __device__ static __forceinline__ void bytes(T* to, unsigned from, unsigned bytes) {                      \
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." text " [%0], [%1], %2;" ::"l"(to), \
                         "r"(from), "r"(bytes)                                                                    \
                         : "memory");                                                                             \
        }                                                                                                         \
    };
#endif
BARACUDA_COMBINES(BARACUDA_COMBINE)
#undef BARACUDA_COMBINE

}  // namespace baracuda
