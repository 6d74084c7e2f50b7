// Warp shuffles, votes, matches and reductions.
#pragma once
#include <string.h>

#include "interface.h"

namespace baracuda_host {

BARACUDA_HOST_UNCHECKED static inline int lane() { return static_cast<int>(thread->linear & 31u); }

template <class T>
static inline T shuffle(const Operation& operation, unsigned mask, T value, int source, Site site) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  Shuffle argument{0, 0, source};
  memcpy(&argument.value, &value, sizeof(T));
  collective(operation, mask, &argument, site);
  memcpy(static_cast<void*>(&value), &argument.result, sizeof(T));
  return value;
}

static inline unsigned vote(const Operation& operation, unsigned mask, uint64_t value, Site site) {
  Vote argument{value, 0};
  collective(operation, mask, &argument, site);
  return argument.result;
}

}  // namespace baracuda_host

static inline void __syncwarp(unsigned mask = 0xffffffffu, BARACUDA_SITE) {
  baracuda_host::collective(baracuda_host::syncwarp, mask, nullptr, BARACUDA_HERE);
}

// A source outside the lane's segment of `width` lanes means the lane's own value, as in CUDA.
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, BARACUDA_SITE) {
  const int first = baracuda_host::lane() & ~(width - 1);
  return baracuda_host::shuffle(baracuda_host::shfl, mask, value, first | (source & (width - 1)), BARACUDA_HERE);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, BARACUDA_SITE) {
  const int lane = baracuda_host::lane(), last = lane | (width - 1), source = lane ^ lane_mask;
  return baracuda_host::shuffle(baracuda_host::shfl_xor, mask, value, source > last ? lane : source, BARACUDA_HERE);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, BARACUDA_SITE) {
  const int lane = baracuda_host::lane(), last = lane | (width - 1), source = lane + static_cast<int>(delta);
  return baracuda_host::shuffle(baracuda_host::shfl_down, mask, value, source > last ? lane : source, BARACUDA_HERE);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, BARACUDA_SITE) {
  const int lane = baracuda_host::lane(), first = lane & ~(width - 1), source = lane - static_cast<int>(delta);
  return baracuda_host::shuffle(baracuda_host::shfl_up, mask, value, source < first ? lane : source, BARACUDA_HERE);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, BARACUDA_SITE) {
  return baracuda_host::vote(baracuda_host::vote_ballot, mask, predicate != 0, BARACUDA_HERE);
}
static inline int __any_sync(unsigned mask, int predicate, BARACUDA_SITE) {
  return static_cast<int>(baracuda_host::vote(baracuda_host::vote_any, mask, predicate != 0, BARACUDA_HERE));
}
static inline int __all_sync(unsigned mask, int predicate, BARACUDA_SITE) {
  return static_cast<int>(baracuda_host::vote(baracuda_host::vote_all, mask, predicate != 0, BARACUDA_HERE));
}
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, BARACUDA_SITE) {
  static_assert(sizeof(T) <= 8, "a match compares at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return baracuda_host::vote(baracuda_host::match_any, mask, bits, BARACUDA_HERE);
}

#define BARACUDA_HOST_REDUCE(T, name, operation)                                                     \
  static inline T name(unsigned mask, T value, BARACUDA_SITE) {                                      \
    const uint64_t bits = static_cast<unsigned>(value);                                              \
    return static_cast<T>(baracuda_host::vote(baracuda_host::operation, mask, bits, BARACUDA_HERE)); \
  }
BARACUDA_HOST_REDUCE(unsigned, __reduce_add_sync, reduce_add)
BARACUDA_HOST_REDUCE(int, __reduce_add_sync, reduce_add)
BARACUDA_HOST_REDUCE(unsigned, __reduce_min_sync, reduce_min)
BARACUDA_HOST_REDUCE(int, __reduce_min_sync, reduce_min_signed)
BARACUDA_HOST_REDUCE(unsigned, __reduce_max_sync, reduce_max)
BARACUDA_HOST_REDUCE(int, __reduce_max_sync, reduce_max_signed)
BARACUDA_HOST_REDUCE(unsigned, __reduce_and_sync, reduce_and)
BARACUDA_HOST_REDUCE(unsigned, __reduce_or_sync, reduce_or)
BARACUDA_HOST_REDUCE(unsigned, __reduce_xor_sync, reduce_xor)
#undef BARACUDA_HOST_REDUCE

// Threads run one after another here, so no set of lanes is "active together".
unsigned __activemask() __attribute__((error("__activemask() means nothing on the host device: pass a mask")));
