// How a kernel library presents its one entry point; BARACUDA_HOST_EXPORT(symbol) is appended to the text.
#pragma once
#include <type_traits>

#include "interface.h"

namespace baracuda_host {

template <class Function>
struct Signature {
  static_assert(sizeof(Function) == 0, "a kernel takes exactly one parameter and returns void");
};
template <class Argument>
struct Signature<void (*)(Argument)> {
  using type = std::remove_cv_t<std::remove_reference_t<Argument>>;
  static_assert(std::is_trivially_copyable<type>::value, "the parameter struct is copied byte by byte");
  static_assert(sizeof(type) % 8 == 0, "every member of the parameter struct is an 8-byte word");
};

BARACUDA_HOST_UNCHECKED static inline char* shared_anchor() {
  static thread_local char anchor;
  return &anchor;
}

}  // namespace baracuda_host

#define BARACUDA_HOST_EXPORT(symbol)                                                               \
  using baracuda_host_argument = baracuda_host::Signature<decltype(&symbol)>::type;                \
  BARACUDA_HOST_UNCHECKED static void baracuda_host_entry(const void* arguments) {                 \
    symbol(*static_cast<const baracuda_host_argument*>(arguments));                                \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) baracuda_host::Kernel baracuda_host_kernel = { \
      baracuda_host_entry,                                                                         \
      baracuda_host::shared_anchor,                                                                \
      sizeof(baracuda_host_argument),                                                              \
      BARACUDA_HOST_DYNAMIC_SHARED,                                                                \
      0,                                                                                           \
      0,                                                                                           \
      nullptr,                                                                                     \
      nullptr,                                                                                     \
      nullptr,                                                                                     \
      BARACUDA_HOST_BLOCKS,                                                                        \
      BARACUDA_HOST_CLUSTER};
