// Where a thread is, and the barriers of its block.
#pragma once
#include "interface.h"

namespace baracuda_host {
BARACUDA_HOST_UNCHECKED static inline uint3 thread_index() { return thread->index; }
BARACUDA_HOST_UNCHECKED static inline uint3 block_index() { return block->index; }
BARACUDA_HOST_UNCHECKED static inline dim3 block_extent() { return block->block; }
BARACUDA_HOST_UNCHECKED static inline dim3 grid_extent() { return block->grid; }
BARACUDA_HOST_UNCHECKED static inline unsigned char* dynamic_shared() { return block->dynamic_shared; }
}  // namespace baracuda_host

#define threadIdx (::baracuda_host::thread_index())
#define blockIdx (::baracuda_host::block_index())
#define blockDim (::baracuda_host::block_extent())
#define gridDim (::baracuda_host::grid_extent())
constexpr int warpSize = 32;

static inline void __syncthreads(BARACUDA_SITE) { baracuda_host::block_barrier(BARACUDA_HERE); }
static inline int __syncthreads_count(int predicate, BARACUDA_SITE) {
  return baracuda_host::block_barrier_reduce(predicate != 0, baracuda_host::Predicate::Count, BARACUDA_HERE);
}
static inline int __syncthreads_and(int predicate, BARACUDA_SITE) {
  return baracuda_host::block_barrier_reduce(predicate != 0, baracuda_host::Predicate::And, BARACUDA_HERE);
}
static inline int __syncthreads_or(int predicate, BARACUDA_SITE) {
  return baracuda_host::block_barrier_reduce(predicate != 0, baracuda_host::Predicate::Or, BARACUDA_HERE);
}
static inline void __trap(BARACUDA_SITE) { baracuda_host::fail("__trap()", BARACUDA_HERE); }
static inline void __nanosleep(unsigned) { baracuda_host::yield(); }

namespace baracuda_host {
// bar.sync id, threads  and  bar.arrive id, threads
static inline void barrier_sync(unsigned id, unsigned threads, BARACUDA_SITE) {
  named_barrier(id, threads, false, BARACUDA_HERE);
}
static inline void barrier_arrive(unsigned id, unsigned threads, BARACUDA_SITE) {
  named_barrier(id, threads, true, BARACUDA_HERE);
}
}  // namespace baracuda_host
