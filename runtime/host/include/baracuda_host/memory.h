// Cache-hinted loads and stores, which are of global memory, fences and atomics.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#include "interface_sm90.h"

#define BARACUDA_HOST_LOAD(name)                        \
  template <class T>                                    \
  static inline T name(const T* address) {              \
    BARACUDA_HOST_NEED(Global, address, #name " from"); \
    return *address;                                    \
  }
BARACUDA_HOST_LOAD(__ldca)
BARACUDA_HOST_LOAD(__ldcg)
BARACUDA_HOST_LOAD(__ldcs)
BARACUDA_HOST_LOAD(__ldcv)
BARACUDA_HOST_LOAD(__ldlu)
#undef BARACUDA_HOST_LOAD
template <class T>
static inline T __ldg(const T* address) {
  BARACUDA_HOST_NEED(Global, address, "__ldg from");
  BARACUDA_HOST_ACCESS(address, sizeof(T), Constant);
  return *address;
}
#define BARACUDA_HOST_STORE(name)                     \
  template <class T>                                  \
  static inline void name(T* address, T value) {      \
    BARACUDA_HOST_NEED(Global, address, #name " to"); \
    *address = value;                                 \
  }
BARACUDA_HOST_STORE(__stcg)
BARACUDA_HOST_STORE(__stcs)
BARACUDA_HOST_STORE(__stwb)
BARACUDA_HOST_STORE(__stwt)
#undef BARACUDA_HOST_STORE

BARACUDA_HOST_UNCHECKED static inline void __threadfence() {
  baracuda_host::let_blocks_run();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  BARACUDA_HOST_FENCE(true);
}
static inline void __threadfence_system() { __threadfence(); }
BARACUDA_HOST_UNCHECKED static inline void __threadfence_block() {
  __asm__ volatile("" ::: "memory");
  BARACUDA_HOST_FENCE(false);
}
static inline size_t __cvta_generic_to_shared(const void* pointer, BARACUDA_SITE) {
  return baracuda_host::shared_address(pointer, BARACUDA_HERE);
}
static inline void* __cvta_shared_to_generic(size_t address, BARACUDA_SITE) {
  return baracuda_host::shared_pointer(static_cast<uint32_t>(address), 0, "__cvta_shared_to_generic of", BARACUDA_HERE);
}

namespace baracuda_host {

static inline void require_aligned(const void* address, size_t alignment, BARACUDA_SITE) {
  if (reinterpret_cast<uintptr_t>(address) % alignment) misaligned(address, alignment, "a pack", BARACUDA_HERE);
}

// A vector of which only [first, end) matters.
template <class V, class T>
BARACUDA_HOST_UNCHECKED static inline void load_part(V* to, const V* from, const T* first, const T* end) {
  const char *const low = reinterpret_cast<const char*>(from), *const high = low + sizeof(V);
  [[maybe_unused]] const auto within = [&](const T* element) {
    const char* const at = reinterpret_cast<const char*>(element);
    return at < low ? low : at > high ? high : at;
  };
  [[maybe_unused]] const char *const used = within(first), *const rest = used > within(end) ? used : within(end);
  BARACUDA_HOST_ACCESS(low, static_cast<size_t>(used - low), Bounds);
  BARACUDA_HOST_ACCESS(used, static_cast<size_t>(rest - used), Read);
  BARACUDA_HOST_ACCESS(rest, static_cast<size_t>(high - rest), Bounds);
  *to = *from;
}

template <size_t bytes>
struct Word;
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint64_t;
};

// Atomically *address = update(*address), for any trivially copyable type of 2, 4 or 8 bytes; returns the old
// value. A thread whose atomics keep changing nothing may be spinning, so it lets others run now and then.
template <class T, class Update>
BARACUDA_HOST_UNCHECKED static inline T read_modify_write(T* address, Update update) {
  let_blocks_run();
  BARACUDA_HOST_ACCESS(address, sizeof(T), Atomic);
  using Bits = typename Word<sizeof(T)>::type;
  Bits* word = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
  T old;
  do {
    memcpy(static_cast<void*>(&old), &before, sizeof old);
    const T updated = update(old);
    memcpy(&after, &updated, sizeof after);
  } while (!__atomic_compare_exchange_n(word, &before, after, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  if (before != after) thread->unchanged = 0;
  else if (++thread->unchanged % 16 == 0) yield();
  return old;
}

// The two halves of a flag protocol. A load that spins lets the thread it waits for run.
template <class T>
BARACUDA_HOST_UNCHECKED static inline T load_acquire(const T* address) {
  yield();
  BARACUDA_HOST_ACCESS(address, sizeof(T), AtomicRead);
  BARACUDA_HOST_FENCE(true);
  T value;
  __atomic_load(address, &value, __ATOMIC_ACQUIRE);
  return value;
}
template <class T>
BARACUDA_HOST_UNCHECKED static inline void store_release(T* address, T value) {
  let_blocks_run();
  BARACUDA_HOST_FENCE(true);
  BARACUDA_HOST_ACCESS(address, sizeof(T), AtomicWrite);
  __atomic_store(address, &value, __ATOMIC_RELEASE);
}

}  // namespace baracuda_host

#define BARACUDA_HOST_ATOMIC(name, T, expression)                                             \
  static inline T name(T* address, T value) {                                                 \
    return baracuda_host::read_modify_write(address, [=](T old) -> T { return expression; }); \
  }
#define BARACUDA_HOST_ATOMICS(T)                                  \
  BARACUDA_HOST_ATOMIC(atomicAdd, T, static_cast<T>(old + value)) \
  BARACUDA_HOST_ATOMIC(atomicSub, T, static_cast<T>(old - value)) \
  BARACUDA_HOST_ATOMIC(atomicMax, T, old > value ? old : value)   \
  BARACUDA_HOST_ATOMIC(atomicMin, T, old < value ? old : value)   \
  BARACUDA_HOST_ATOMIC(atomicAnd, T, static_cast<T>(old & value)) \
  BARACUDA_HOST_ATOMIC(atomicOr, T, static_cast<T>(old | value))  \
  BARACUDA_HOST_ATOMIC(atomicXor, T, static_cast<T>(old ^ value)) \
  BARACUDA_HOST_ATOMIC(atomicExch, T, ((void)old, value))
BARACUDA_HOST_ATOMICS(int)
BARACUDA_HOST_ATOMICS(unsigned)
BARACUDA_HOST_ATOMICS(long long)
BARACUDA_HOST_ATOMICS(unsigned long long)
BARACUDA_HOST_ATOMIC(atomicAdd, float, old + value)
BARACUDA_HOST_ATOMIC(atomicAdd, double, old + value)
BARACUDA_HOST_ATOMIC(atomicExch, float, ((void)old, value))
BARACUDA_HOST_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
BARACUDA_HOST_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
#undef BARACUDA_HOST_ATOMICS
#undef BARACUDA_HOST_ATOMIC

#define BARACUDA_HOST_COMPARE_AND_SWAP(T)                                                                        \
  static inline T atomicCAS(T* address, T expected, T value) {                                                   \
    return baracuda_host::read_modify_write(address, [=](T old) -> T { return old == expected ? value : old; }); \
  }
BARACUDA_HOST_COMPARE_AND_SWAP(unsigned short)
BARACUDA_HOST_COMPARE_AND_SWAP(int)
BARACUDA_HOST_COMPARE_AND_SWAP(unsigned)
BARACUDA_HOST_COMPARE_AND_SWAP(long long)
BARACUDA_HOST_COMPARE_AND_SWAP(unsigned long long)
#undef BARACUDA_HOST_COMPARE_AND_SWAP
