// Shared memory as 32-bit addresses. Dynamic shared memory comes first, static shared memory behind it, both aligned as
// they are in the process, up to 1024 bytes: that is what swizzles look at.
#include <string.h>

#include "async_proxy.h"

namespace baracuda_host {

static constexpr uint32_t window_bytes = 256 << 10, pattern = 1024, rank_shift = 24;

static uint32_t beyond(uint32_t offset, const void* aligned_as) {
  return (offset + pattern - 1) / pattern * pattern +
         static_cast<uint32_t>(reinterpret_cast<uintptr_t>(aligned_as) % pattern);
}

struct SharedRange {
  char* first;
  uint32_t bytes, offset;
};

static SharedRange dynamic_range(const Worker& w) {
  char* first = reinterpret_cast<char*>(w.view.dynamic_shared);
  return {first, static_cast<uint32_t>(w.launch->kernel->dynamic_shared), beyond(1, w.lead->view.dynamic_shared)};
}
char* static_shared(const Kernel& kernel) { return kernel.shared_anchor() - kernel.anchor_offset; }
static SharedRange static_range(const Worker& w) {
  const SharedRange dynamic = dynamic_range(w);
  const Kernel& kernel = *w.launch->kernel;
  char* segment = static_shared(kernel);
  const uint32_t offset = beyond(dynamic.offset + dynamic.bytes, segment);
  return {&w == worker ? segment : const_cast<char*>(w.away.data()), static_cast<uint32_t>(kernel.static_shared),
          offset};
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

uint32_t offset_in_block(uint32_t address) { return address & ((1u << rank_shift) - 1); }

// "byte 128 of dynamic shared memory"
std::string shared_name(uint32_t address) {
  const uint32_t offset = offset_in_block(address), rank = address >> rank_shift;
  const SharedRange objects = static_range(*worker);
  const bool is_static = offset >= objects.offset && offset < objects.offset + objects.bytes;
  const SharedRange range = is_static ? objects : dynamic_range(*worker);
  return "byte " + std::to_string(static_cast<int32_t>(offset - range.offset)) + " of " +
         (is_static ? "static" : "dynamic") + " shared memory" +
         (rank ? " of block " + std::to_string(rank - 1) + " of the cluster" : "");
}

Worker& block_of(uint32_t address, const char* instruction, Site site) {
  const uint32_t rank = address >> rank_shift;
  if (!rank) return *worker;
  if (rank > worker->launch->cluster())
    fail(std::string(instruction) + " " + shared_name(address) + ", which has " +
             std::to_string(worker->launch->cluster()) + " blocks",
         site);
  Worker& block = *worker->lead->blocks[rank - 1];
  if (!block.live) fail(std::string(instruction) + " " + shared_name(address) + ", which has ended", site);
  return block;
}

void* shared_pointer(uint32_t address, size_t bytes, const char* instruction, Site site) {
  const Worker& block = block_of(address, instruction, site);
  const uint32_t offset = offset_in_block(address);
  for (const SharedRange& range : {dynamic_range(block), static_range(block)})
    if (offset >= range.offset && offset + bytes <= range.offset + range.bytes)
      return range.first + (offset - range.offset);
  fail(std::string(instruction) + " " + std::to_string(bytes) + " bytes at " + shared_name(address) + ", which has " +
           std::to_string(worker->launch->kernel->dynamic_shared) + " bytes",
       site);
}

uint32_t cluster_rank() { return worker->rank; }

uint32_t mapped_address(uint32_t address, uint32_t rank, Site site) {
  if (rank >= worker->launch->cluster())
    fail("mapa of rank " + std::to_string(rank) + " in a cluster of " + std::to_string(worker->launch->cluster()) +
             " blocks",
         site);
  return offset_in_block(address) | (rank + 1) << rank_shift;
}

uint32_t absolute_address(uint32_t address) {
  return worker->launch->cluster() == 1 || address >> rank_shift ? address : address | (worker->rank + 1) << rank_shift;
}

PlaceInBlock place_in_block(uint32_t address) {
  const uint32_t rank = address >> rank_shift, offset = offset_in_block(address);
  const Worker& block = rank ? *worker->lead->blocks[rank - 1] : *worker;
  const SharedRange dynamic = dynamic_range(block), objects = static_range(block);
  if (offset < objects.offset) return {block.rank, dynamic.first + (offset - dynamic.offset)};
  return {block.rank, static_shared(*block.launch->kernel) + (offset - objects.offset)};
}

// Leaves the running block for another.
void switch_to_block(Worker& next) {
  const Kernel& kernel = *next.launch->kernel;
  if (&next == worker) return;
  if (kernel.static_shared > 1) {
    memcpy(worker->away.data(), static_shared(kernel), kernel.static_shared);
    memcpy(static_shared(kernel), next.away.data(), kernel.static_shared);
  }
  worker = &next;
  block = &next.view;
  if (checker) checker->switch_to(next);
}

}  // namespace baracuda_host
