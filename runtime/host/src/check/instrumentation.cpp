// What the vocabulary tells check mode, and the functions that -fsanitize=thread and -fsanitize=alignment,bounds,...
// make a kernel call. The sanitizers' own libraries are not linked: here each call gets the meaning it has on a GPU.
#include <string.h>

#include "checker.h"

namespace baracuda_host {

static bool is_checked() { return checker && worker && worker->os->in_kernel; }

// Called by the vocabulary.
void access(const void* address, size_t bytes, Access kind) {
  if (bytes && is_checked()) checker->access(static_cast<const char*>(address), bytes, kind);
}
void need(Space space, const void* address, const char* instruction) {
  if (is_checked()) checker->need(space, static_cast<const char*>(address), instruction);
}
void fence(bool between_blocks) {
  if (is_checked()) checker->fence(between_blocks);
}

void wait_on_dependent_grids() {
  if (is_checked()) checker->wait_for_grid();
}

void* copy(void* to, const void* from, size_t bytes) {
  access(from, bytes, Access::Read);
  access(to, bytes, Access::Write);
  return memmove(to, from, bytes);
}
void* fill(void* to, int value, size_t bytes) {
  access(to, bytes, Access::Write);
  return memset(to, value, bytes);
}

// A volatile load may be waiting for another thread to store.
static void looked_at_volatile(const void* address, size_t bytes) {
  if (is_checked()) yield();
  access(address, bytes, Access::VolatileRead);
}

void misaligned(const void* address, size_t alignment, const char* type, Site site) {
  const std::string near = checker ? checker->nearest(static_cast<const char*>(address)) : "";
  fail("misaligned access to " + std::string(type) + (near.empty() ? "" : ", " + near) + ": needs a multiple of " +
           std::to_string(alignment) + ", is " + std::to_string(reinterpret_cast<uintptr_t>(address) % alignment) +
           " beyond one",
       site);
}

struct Location {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;
  char name[1];
};

// What the language leaves undefined; what cannot go on ends the launch.
static void undefined(const std::string& what, bool goes_on) {
  if (!is_checked()) return;
  checker->say(what);
  if (!goes_on) abandon();
}

}  // namespace baracuda_host

#define BARACUDA_HOST_HOOK extern "C" __attribute__((visibility("default")))
#define BARACUDA_HOST_ACCESS_HOOK(name, bytes, kind) \
  BARACUDA_HOST_HOOK void name(void* address) { baracuda_host::access(address, bytes, baracuda_host::Access::kind); }
#define BARACUDA_HOST_VOLATILE_HOOK(name, bytes) \
  BARACUDA_HOST_HOOK void name(void* address) { baracuda_host::looked_at_volatile(address, bytes); }
#define BARACUDA_HOST_ACCESS_HOOKS(bytes)                                       \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_read##bytes, bytes, Read)                    \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_write##bytes, bytes, Write)                  \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_unaligned_read##bytes, bytes, Read)          \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_unaligned_write##bytes, bytes, Write)        \
  BARACUDA_HOST_VOLATILE_HOOK(__tsan_volatile_read##bytes, bytes)               \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_volatile_write##bytes, bytes, VolatileWrite) \
  BARACUDA_HOST_VOLATILE_HOOK(__tsan_unaligned_volatile_read##bytes, bytes)     \
  BARACUDA_HOST_ACCESS_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, VolatileWrite)
BARACUDA_HOST_ACCESS_HOOKS(1)
BARACUDA_HOST_ACCESS_HOOKS(2)
BARACUDA_HOST_ACCESS_HOOKS(4)
BARACUDA_HOST_ACCESS_HOOKS(8)
BARACUDA_HOST_ACCESS_HOOKS(16)

BARACUDA_HOST_HOOK void __tsan_read_range(void* address, size_t bytes) {
  baracuda_host::access(address, bytes, baracuda_host::Access::Read);
}
BARACUDA_HOST_HOOK void __tsan_write_range(void* address, size_t bytes) {
  baracuda_host::access(address, bytes, baracuda_host::Access::Write);
}
BARACUDA_HOST_HOOK void* __tsan_memset(void* to, int value, size_t bytes) {
  return baracuda_host::fill(to, value, bytes);
}
BARACUDA_HOST_HOOK void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return baracuda_host::copy(to, from, bytes);
}
BARACUDA_HOST_HOOK void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return baracuda_host::copy(to, from, bytes);
}
BARACUDA_HOST_HOOK void __tsan_init() {}
BARACUDA_HOST_HOOK void __tsan_func_entry(void*) {}
BARACUDA_HOST_HOOK void __tsan_func_exit() {}

struct TypeMismatch {
  baracuda_host::Location location;
  baracuda_host::Type* type;
  unsigned char log_alignment, kind;
};
BARACUDA_HOST_HOOK void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t address) {
  const size_t alignment = size_t{1} << data->log_alignment;
  const std::string type = data->type->name;
  if (!address) baracuda_host::undefined("null pointer to " + type, false);
  if (baracuda_host::is_checked())
    baracuda_host::misaligned(reinterpret_cast<void*>(address), alignment, type.c_str(), {"", 0});
}
struct OutOfBounds {
  baracuda_host::Location location;
  baracuda_host::Type *array, *index;
};
BARACUDA_HOST_HOOK void __ubsan_handle_out_of_bounds(OutOfBounds* data, uintptr_t index) {
  baracuda_host::undefined("index " + std::to_string(static_cast<intptr_t>(index)) + " is outside " + data->array->name,
                           false);
}
struct TwoOperands {
  baracuda_host::Location location;
  baracuda_host::Type *left, *right;
};
BARACUDA_HOST_HOOK void __ubsan_handle_shift_out_of_bounds(TwoOperands* data, uintptr_t, uintptr_t by) {
  baracuda_host::undefined(
      "shift of " + std::string(data->left->name) + " by " + std::to_string(static_cast<intptr_t>(by)), true);
}
struct OneOperand {
  baracuda_host::Location location;
  baracuda_host::Type* type;
};
BARACUDA_HOST_HOOK void __ubsan_handle_divrem_overflow(OneOperand*, uintptr_t, uintptr_t) {
  baracuda_host::undefined("integer division by zero or overflow", false);
}
static void overflow(OneOperand* data) {
  baracuda_host::undefined("overflow of " + std::string(data->type->name), true);
}
BARACUDA_HOST_HOOK void __ubsan_handle_add_overflow(OneOperand* data, uintptr_t, uintptr_t) { overflow(data); }
BARACUDA_HOST_HOOK void __ubsan_handle_sub_overflow(OneOperand* data, uintptr_t, uintptr_t) { overflow(data); }
BARACUDA_HOST_HOOK void __ubsan_handle_mul_overflow(OneOperand* data, uintptr_t, uintptr_t) { overflow(data); }
BARACUDA_HOST_HOOK void __ubsan_handle_negate_overflow(OneOperand* data, uintptr_t) { overflow(data); }
BARACUDA_HOST_HOOK void __ubsan_handle_builtin_unreachable(baracuda_host::Location*) {
  baracuda_host::undefined("unreachable code reached", false);
}
