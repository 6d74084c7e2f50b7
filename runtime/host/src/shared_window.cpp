// Shared memory as 32-bit addresses. Dynamic shared memory comes first, static shared memory behind it, both aligned as
// they are in the process, up to 1024 bytes: that is what swizzles look at.
#include "state.h"

namespace baracuda_host {

static constexpr uint32_t window_bytes = 256 << 10, pattern = 1024, rank_shift = 24;

static uint32_t beyond(uint32_t offset, const void* aligned_as) {
  return (offset + pattern - 1) / pattern * pattern + static_cast<uint32_t>(reinterpret_cast<uintptr_t>(aligned_as) % pattern);
}

struct SharedRange {
  char* first;
  uint32_t bytes, offset;
};

static SharedRange dynamic_range(const Worker& w) {
  char* first = reinterpret_cast<char*>(w.view.dynamic_shared);
  return {first, static_cast<uint32_t>(w.launch->kernel->dynamic_shared), beyond(1, first)};
}
static SharedRange static_range(const Worker& w) {
  const SharedRange dynamic = dynamic_range(w);
  const Kernel& kernel = *w.launch->kernel;
  char* first = kernel.shared_anchor() - kernel.anchor_offset;
  return {first, static_cast<uint32_t>(kernel.static_shared), beyond(dynamic.offset + dynamic.bytes, first)};
}

uint32_t shared_address(const void* pointer, Site site) {
  for (const SharedRange& range : {dynamic_range(*worker), static_range(*worker)}) {
    if (pointer < range.first || pointer > range.first + range.bytes) continue;
    const uint32_t address = range.offset + static_cast<uint32_t>(static_cast<const char*>(pointer) - range.first);
    if (address > window_bytes) fail("shared memory of the block exceeds 256 KiB", site);
    return address;
  }
  fail("__cvta_generic_to_shared of an address that is not in shared memory", site);
}

// "byte 128 of dynamic shared memory"
static std::string shared_name(uint32_t address) {
  const uint32_t offset = address & ((1u << rank_shift) - 1), rank = address >> rank_shift;
  const SharedRange dynamic = dynamic_range(*worker);
  const SharedRange objects = static_range(*worker);
  const bool is_static = offset >= objects.offset && offset < objects.offset + objects.bytes;
  const SharedRange range = is_static ? objects : dynamic;
  return "byte " + std::to_string(static_cast<int32_t>(offset - range.offset)) + " of " + (is_static ? "static" : "dynamic") +
         " shared memory" + (rank ? " of block " + std::to_string(rank - 1) + " of the cluster" : "");
}

void* shared_pointer(uint32_t address, size_t bytes, const char* instruction, Site site) {
  for (const SharedRange& range : {dynamic_range(*worker), static_range(*worker)})
    if (address >= range.offset && address + bytes <= range.offset + range.bytes) return range.first + (address - range.offset);
  fail(std::string(instruction) + " " + std::to_string(bytes) + " bytes at " + shared_name(address) + ", which has " +
           std::to_string(worker->launch->kernel->dynamic_shared) + " bytes", site);
}

}  // namespace baracuda_host
