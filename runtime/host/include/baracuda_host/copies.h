// In check mode: what the compiler turns into calls of memcpy and its like is looked at as well. Defined in each
// kernel library, for itself alone.
#pragma once
#ifdef BARACUDA_HOST_CHECK
#include <string.h>

#include "interface.h"

#define BARACUDA_HOST_OWN extern "C" __attribute__((visibility("hidden"), used)) BARACUDA_HOST_UNCHECKED
BARACUDA_HOST_OWN void* memcpy(void* to, const void* from, size_t bytes) noexcept {
  return baracuda_host::copy(to, from, bytes);
}
BARACUDA_HOST_OWN void* memmove(void* to, const void* from, size_t bytes) noexcept {
  return baracuda_host::copy(to, from, bytes);
}
BARACUDA_HOST_OWN void* memset(void* to, int value, size_t bytes) noexcept {
  return baracuda_host::fill(to, value, bytes);
}
#undef BARACUDA_HOST_OWN
#endif
