// Instructions that make the copy engine's work, and what they require.
#include <string.h>

#include "../check/checker.h"
#include "boxes.h"
#include "copy_engine.h"

namespace baracuda_host {

static const char load_box_name[] = "cp.async.bulk.tensor", load_name[] = "cp.async.bulk",
                  store_name[] = "cp.async.bulk to global memory", reduce_name[] = "cp.reduce.async.bulk",
                  store_box_name[] = "cp.async.bulk.tensor to global memory",
                  reduce_box_name[] = "cp.reduce.async.bulk.tensor", prefetch_name[] = "cp.async.bulk.prefetch",
                  prefetch_box_name[] = "cp.async.bulk.prefetch.tensor", send_name[] = "st.async";

static void require_told(uint32_t barrier, const char* instruction, Site site) {
  if (!mbarrier_at(barrier, instruction, site).published)
    fail(std::string(instruction) + " with the mbarrier at " + shared_name(barrier) +
             ", which it does not see; needs fence.mbarrier_init or fence.proxy.async after mbarrier.init",
         site);
}

static void require_multiple(uintptr_t address, uint32_t of, const std::string& what, Site site) {
  if (address % of)
    fail(what + " at " + std::to_string(address % of) + " bytes beyond a multiple of " + std::to_string(of), site);
}

static TensorMap map_of(const void* map, const char* name, Site site) {
  TensorMap copy;
  memcpy(&copy, map, sizeof copy);
  if (copy.mark != tensor_map_mark)
    fail(std::string(name) + " with a tensor map that the host device has not encoded", site);
  return copy;
}

static BulkCopy of_box(const BoxAddress& box, const char* name, Site site) {
  BulkCopy copy{};
  copy.map = map_of(box.map, name, site);
  if (copy.map.rank != box.rank)
    fail(std::string(name) + " with " + std::to_string(box.rank) + " coordinates, its tensor map has " +
             std::to_string(copy.map.rank) + " axes",
         site);
  copy.name = name, copy.site = site, copy.bytes = box_bytes(copy.map);
  memcpy(copy.coordinates, box.coordinates, sizeof copy.coordinates);
  // An H100 reports an illegal instruction.
  if (const int64_t start = int64_t{box.coordinates[0]} * copy.map.item_bytes; start % 16)
    fail(std::string(name) + " of a box that starts at byte " + std::to_string(start) +
             " of its rows; needs a multiple of 16",
         site);
  return copy;
}

static void place_box(BulkCopy& copy, uint32_t shared, const char* direction) {
  const std::string name = std::string(copy.name) + direction;
  require_multiple(shared, 128, name + " " + shared_name(shared), copy.site);
  shared_pointer(shared, copy.bytes, name.c_str(), copy.site);
  copy.address = absolute_address(shared);
}

static BulkCopy linear(uint32_t shared, const void* global, uint32_t bytes, const char* name, Site site) {
  BulkCopy copy{};
  if (!bytes || bytes % 16)
    fail(std::string(name) + " of " + std::to_string(bytes) + " bytes, which is not a multiple of 16", site);
  require_multiple(shared, 16, std::string(name) + " with " + shared_name(shared), site);
  require_multiple(reinterpret_cast<uintptr_t>(global), 16, std::string(name) + " with an address in global memory",
                   site);
  copy.name = name, copy.site = site, copy.bytes = bytes, copy.address = absolute_address(shared);
  copy.global = static_cast<char*>(const_cast<void*>(global));
  shared_pointer(shared, bytes, name, site);
  return copy;
}

// To each of `blocks` of the cluster, or to the one that the addresses name.
static void issue_load(BulkCopy copy, uint32_t barrier, uint16_t blocks) {
  const uint32_t to = copy.address;
  for (uint32_t rank = 0; rank < 16; rank++) {
    if (blocks ? !(blocks >> rank & 1) : rank > 0) continue;
    if (blocks) copy.address = mapped_address(to, rank, copy.site);
    copy.barrier = absolute_address(blocks ? mapped_address(barrier, rank, copy.site) : barrier);
    require_told(copy.barrier, copy.name, copy.site);
    issue(copy);
  }
}

void bulk_load_box(uint32_t to, const BoxAddress& box, uint32_t barrier, uint16_t blocks, Site site) {
  BulkCopy copy = of_box(box, load_box_name, site);
  copy.kind = BulkCopy::LoadBox;
  place_box(copy, to, " to");
  issue_load(std::move(copy), barrier, blocks);
}

void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint16_t blocks, Site site) {
  BulkCopy copy = linear(to, from, bytes, load_name, site);
  copy.kind = BulkCopy::Load;
  issue_load(std::move(copy), barrier, blocks);
}

void bulk_store_box(const BoxAddress& box, uint32_t from, Update how, Site site) {
  BulkCopy copy = of_box(box, how == Update::Store ? store_box_name : reduce_box_name, site);
  copy.kind = BulkCopy::StoreBox, copy.how = how, copy.of = static_cast<Number>(copy.map.number);
  if (how != Update::Store && copy.map.number == 255)
    fail(std::string(reduce_box_name) + " with a tensor map of elements that it cannot combine", site);
  // Measured on an H100, whose store of a box of halves wrote an element beside rows of 129.
  if (const uint64_t row = copy.map.extents[0] * copy.map.item_bytes; row % 16)
    fail(std::string(copy.name) + " to rows of " + std::to_string(row) + " bytes; needs a multiple of 16", site);
  place_box(copy, from, " from");
  issue(std::move(copy));
}

void bulk_store(void* to, uint32_t from, uint32_t bytes, Update how, Number of, Site site) {
  BulkCopy copy = linear(from, to, bytes, how == Update::Store ? store_name : reduce_name, site);
  copy.kind = BulkCopy::Store, copy.how = how, copy.of = of;
  issue(std::move(copy));
}

void store_async(uint32_t to, uint64_t value, uint32_t bytes, uint32_t barrier, Site site) {
  BulkCopy copy{};
  copy.kind = BulkCopy::Send, copy.name = send_name, copy.site = site, copy.bytes = bytes, copy.value = value;
  require_multiple(to, bytes, "st.async to " + shared_name(to), site);
  mbarrier_at(barrier, send_name, site);
  if (&block_of(to, send_name, site) != &block_of(barrier, send_name, site))
    fail("st.async to " + shared_name(to) + " with the mbarrier at " + shared_name(barrier) +
             "; needs one of the same block",
         site);
  shared_pointer(to, bytes, "st.async to", site);
  copy.address = absolute_address(to), copy.barrier = absolute_address(barrier);
  issue(std::move(copy));
}

// A prefetch changes nothing, but what it names has to be there.
void prefetch_map(const void* map, Site site) { map_of(map, "prefetch.tensormap", site); }

void bulk_prefetch_box(const BoxAddress& box, Site site) { of_box(box, prefetch_box_name, site); }

void bulk_prefetch(const void* from, uint32_t bytes, Site site) {
  if (!bytes || bytes % 16)
    fail(std::string(prefetch_name) + " of " + std::to_string(bytes) + " bytes, which is not a multiple of 16", site);
  require_multiple(reinterpret_cast<uintptr_t>(from), 16, std::string(prefetch_name) + " of an address", site);
  if (checker) checker->need(Space::Global, static_cast<const char*>(from), prefetch_name);
}

struct Election {
  uint32_t seed;
  Order order;
  bool won;
};

// Whichever lane it is, the same lanes elect it again.
static void elect_one(void** arguments, uint32_t lanes) {
  const auto& first = *static_cast<const Election*>(arguments[__builtin_ctz(lanes)]);
  uint32_t skip = 0, left = lanes;
  if (first.order == Order::Reverse) skip = static_cast<uint32_t>(__builtin_popcount(lanes)) - 1;
  if (first.order == Order::Random)
    skip = ((lanes * 2654435761u ^ first.seed * 747796405u) >> 8) % static_cast<uint32_t>(__builtin_popcount(lanes));
  for (; skip; skip--) left &= left - 1;
  static_cast<Election*>(arguments[__builtin_ctz(left)])->won = true;
}

bool elect(uint32_t lanes, Site site) {
  static const Operation operation{"elect.sync", elect_one};
  Election election{worker->launch->seed, worker->launch->order, false};
  collective(operation, lanes, &election, site);
  return election.won;
}

}  // namespace baracuda_host
