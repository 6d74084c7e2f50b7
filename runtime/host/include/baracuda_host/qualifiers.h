// Declaration qualifiers.
#pragma once

// A translation unit holds every entry point of a generated file and needs one of them: `inline` makes the
// compiler drop the others before it optimises them.
#ifndef BARACUDA_HOST_CHECK
#define __global__ inline
#else  // which the entry point, whose accesses are not looked at, would swallow
#define __global__ inline __attribute__((noinline))
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// A kernel's parameter, which is large for a list of arrays: no thread has a copy of its own.
#define PARAMETER(...) const __VA_ARGS__&
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

// A block runs on one OS thread, so what the block shares is what that OS thread owns. The library holds no
// other thread-local object: the runtime poisons the whole thread-local segment at each block start.
#ifdef BARACUDA_HOST_CHECK
// Memory that belongs to no object lies between two of them, so that an access beyond one is not within another. GCC is
// told to keep that order of these alone: told so of everything, it compiles all of this vocabulary for each kernel.
#ifdef __clang__
#define BARACUDA_HOST_IN_ORDER
#else
#define BARACUDA_HOST_IN_ORDER __attribute__((no_reorder))
#endif
#define BARACUDA_HOST_JOIN_(a, b) a##b
#define BARACUDA_HOST_JOIN(a, b) BARACUDA_HOST_JOIN_(a, b)
#define BARACUDA_HOST_GAP BARACUDA_HOST_JOIN(baracuda_host_gap_, __COUNTER__)[64]
#define __shared__                                                                         \
  static thread_local char BARACUDA_HOST_GAP __attribute__((used)) BARACUDA_HOST_IN_ORDER; \
  static thread_local __attribute__((aligned(16))) BARACUDA_HOST_IN_ORDER
#else
#define __shared__ static thread_local __attribute__((aligned(16)))
#endif

// `extern __shared__ T name[];` has no C++ meaning, so device headers define DYN_SHARED for CUDA as well.
// The launch reserves DYN_SHARED_BYTES, a macro from the source or its defines.
#define DYN_SHARED(T, name) T* const name = reinterpret_cast<T*>(::baracuda_host::dynamic_shared())
