// cp.async.bulk: what the copy engine does for a thread, somewhere between the instruction and the wait that covers it.
#include <string.h>

#include "async_proxy.h"
#include "../check/checker.h"
#include "tensor_map.h"

namespace baracuda_host {

static const char load_box_name[] = "cp.async.bulk.tensor", load_name[] = "cp.async.bulk",
                  store_name[] = "cp.async.bulk to global memory", reduce_name[] = "cp.reduce.async.bulk",
                  send_name[] = "st.async";

static Mbarrier& told(uint32_t barrier, const char* instruction, Site site) {
  Mbarrier& at = mbarrier_at(barrier, instruction, site);
  if (!at.published)
    fail(std::string(instruction) + " with the mbarrier at " + shared_name(barrier) +
             ", which it does not see; needs fence.mbarrier_init or fence.proxy.async after mbarrier.init",
         site);
  return at;
}

static void require_multiple(uintptr_t address, uint32_t of, const std::string& what, Site site) {
  if (address % of)
    fail(what + " at " + std::to_string(address % of) + " bytes beyond a multiple of " + std::to_string(of), site);
}

// The engine's bytes of an address with a swizzle: chunks of 16 bytes in the order of the address's upper bits.
static uint32_t swizzled(uint32_t address, uint32_t swizzle) {
  return address ^ ((address >> 7 & ((1u << swizzle) - 1)) << 4);
}

static uint32_t box_bytes(const TensorMap& map) {
  uint32_t bytes = map.item_bytes;
  for (uint32_t axis = 0; axis < map.rank; axis++) bytes *= map.box[axis];
  return bytes;
}

// Calls visit(offset in the box, element in memory or null beyond the edges, bytes) for runs of the first axis.
template <class Visit>
static void each_run(const TensorMap& map, const int32_t* coordinates, Visit visit) {
  const int64_t box = map.box[0], extent = map.extents[0], start = coordinates[0];
  const int64_t before = std::clamp<int64_t>(-start, 0, box),
                inside = std::clamp<int64_t>(extent - start, before, box) - before;
  uint32_t index[5] = {}, offset = 0;
  for (;;) {
    char* row = map.first;
    bool within = true;
    for (uint32_t axis = 1; axis < map.rank; axis++) {
      const int64_t place = int64_t{coordinates[axis]} + index[axis];
      within &= place >= 0 && place < map.extents[axis];
      row += place * static_cast<int64_t>(map.strides[axis - 1]);
    }
    const uint32_t width = map.item_bytes,
                   ends[] = {0, static_cast<uint32_t>(before) * width, static_cast<uint32_t>(before + inside) * width,
                             static_cast<uint32_t>(box) * width};
    for (int part = 0; part < 3; part++)
      if (ends[part + 1] > ends[part])
        visit(offset + ends[part], part == 1 && within ? row + (start + before) * width : nullptr,
              ends[part + 1] - ends[part]);
    offset += ends[3];
    uint32_t axis = 1;
    while (axis < map.rank && ++index[axis] == map.box[axis]) index[axis++] = 0;
    if (axis >= map.rank) return;
  }
}

// Calls visit(offset, bytes) for the pieces of [offset, offset + bytes) that lie in one chunk of 16 bytes each.
template <class Visit>
static void each_chunk(uint32_t offset, uint32_t bytes, Visit visit) {
  for (const uint32_t end = offset + bytes; offset < end;) {
    const uint32_t piece = std::min(end, (offset / 16 + 1) * 16) - offset;
    visit(offset, piece);
    offset += piece;
  }
}

static void write_box(char* shared, uint32_t address, const TensorMap& map, const int32_t* coordinates) {
  each_run(map, coordinates, [&](uint32_t offset, const char* from, uint32_t bytes) {
    each_chunk(offset, bytes, [&](uint32_t at, uint32_t piece) {
      char* to = shared + (swizzled(address + at, map.swizzle) - address);
      if (from) memcpy(to, from + (at - offset), piece);
      else memset(to, map.fill_nan ? 0xff : 0, piece);
    });
  });
}

struct BulkCopy {
  enum Kind : uint8_t { LoadBox, Load, Send, Store, Reduce } kind;  // the first three arrive at a barrier
  const char* name;
  char* global;
  TensorMap map;
  int32_t coordinates[5];
  uint32_t address, bytes, barrier, group;
  const Thread* thread;
  uint64_t value;
  std::vector<char> source;     // of a store whose source has been read
  std::vector<uint32_t> clock;  // of a load, in check mode
  Site site;
};

struct CopyEngine {
  std::vector<BulkCopy> copies;  // in flight, in order of issue
};

// Where its bytes in shared memory lie now: static shared memory moves when another block of the cluster runs.
static char* shared_of(const BulkCopy& copy) {
  return static_cast<char*>(shared_pointer(copy.address, copy.bytes, copy.name, copy.site));
}

static bool is_load(const BulkCopy& copy) { return copy.kind <= BulkCopy::Send; }

static const char* source_of(const BulkCopy& copy) {
  return copy.source.empty() ? shared_of(copy) : copy.source.data();
}

static void read_source(BulkCopy& copy) {
  if (!copy.source.empty()) return;
  const char* shared = shared_of(copy);
  copy.source.assign(shared, shared + copy.bytes);
  if (checker) checker->access(shared, copy.bytes, Access::Read);
}

static void run_copy(const BulkCopy& copy) {
  switch (copy.kind) {
    case BulkCopy::LoadBox: write_box(shared_of(copy), copy.address, copy.map, copy.coordinates); break;
    case BulkCopy::Load: memcpy(shared_of(copy), copy.global, copy.bytes); break;
    case BulkCopy::Send: memcpy(shared_of(copy), &copy.value, copy.bytes); break;
    case BulkCopy::Store: memcpy(copy.global, source_of(copy), copy.bytes); break;
    case BulkCopy::Reduce:
      for (uint32_t i = 0; i < copy.bytes; i += 4) {
        float sum, value;
        memcpy(&sum, copy.global + i, 4);
        memcpy(&value, source_of(copy) + i, 4);
        sum += value;
        memcpy(copy.global + i, &sum, 4);
      }
  }
}

static void finish_load(Worker& w, size_t index) {
  const BulkCopy copy = std::move(w.engine->copies[index]);
  w.engine->copies.erase(w.engine->copies.begin() + static_cast<ptrdiff_t>(index));
  run_copy(copy);
  if (checker) {
    const PlaceInBlock place = place_in_block(copy.address);
    checker->bulk_copy_ends(place.rank, place.address, copy.bytes);
    checker->pass_on(mbarrier_at(copy.barrier, copy.name, copy.site).clock, copy.clock);
  }
  mbarrier_receive(copy.barrier, copy.bytes, copy.site);
}

// Check mode, when the copy is issued.
static void look_at(BulkCopy& copy) {
  const auto looked_at_global = [&](const char* at, uint32_t bytes, Access kind) {
    checker->need(Space::Global, at, copy.name);
    checker->access(at, bytes, kind);
  };
  switch (copy.kind) {
    case BulkCopy::LoadBox:
      each_run(copy.map, copy.coordinates, [&](uint32_t, const char* from, uint32_t bytes) {
        if (from) looked_at_global(from, bytes, Access::Read);
      });
      break;
    case BulkCopy::Load: looked_at_global(copy.global, copy.bytes, Access::Read); break;
    case BulkCopy::Send: break;
    case BulkCopy::Store: looked_at_global(copy.global, copy.bytes, Access::Write); break;
    case BulkCopy::Reduce:
      looked_at_global(copy.global, copy.bytes, Access::Read);
      looked_at_global(copy.global, copy.bytes, Access::Write);
  }
  if (!is_load(copy)) {
    checker->access(shared_of(copy), copy.bytes, Access::Peek);
    return;
  }
  const PlaceInBlock place = place_in_block(copy.address);
  checker->bulk_copy_begins(place.rank, place.address, copy.bytes, copy.clock);
}

// Check mode, when what a store writes is there: at a wait for it, or at the latest when its block ends.
static void write_ends(const BulkCopy& copy) {
  if (checker) checker->access(copy.global, copy.bytes, Access::Write);
}

// Copies in flight have no order, but sums may be added to in any.
static void require_alone(const CopyEngine& engine, const BulkCopy& copy) {
  for (const BulkCopy& other : engine.copies) {
    const bool both_add = copy.kind == BulkCopy::Reduce && other.kind == BulkCopy::Reduce;
    if (is_load(other) || both_add || copy.global >= other.global + other.bytes ||
        other.global >= copy.global + copy.bytes)
      continue;
    fail(std::string(copy.name) + " where " + other.name + " of " + std::to_string(other.bytes) +
             " bytes is in flight, issued at " + place(other.site) + "; needs cp.async.bulk.wait_group for it",
         copy.site);
  }
}

static void issue(BulkCopy copy) {
  Worker& lead = *worker->lead;
  if (!lead.engine) lead.engine = new CopyEngine;
  copy.thread = &running();
  copy.group = running().bulk_group;
  if (!is_load(copy)) require_alone(*lead.engine, copy);
  if (checker) look_at(copy);
  if (is_load(copy)) memset(shared_of(copy), 0xff, copy.bytes);
  const bool now = happens_now(*worker);
  if (now && !is_load(copy)) {
    read_source(copy);
    run_copy(copy);
    write_ends(copy);
    return;
  }
  lead.engine->copies.push_back(std::move(copy));
  if (now) finish_load(lead, lead.engine->copies.size() - 1);
}

void bulk_load_box(uint32_t to, const BoxAddress& box, uint32_t barrier, Site site) {
  BulkCopy copy{};
  memcpy(&copy.map, box.map, sizeof copy.map);
  if (copy.map.mark != tensor_map_mark)
    fail("cp.async.bulk.tensor with a tensor map that the host device has not encoded", site);
  if (copy.map.rank != box.rank)
    fail("cp.async.bulk.tensor with " + std::to_string(box.rank) + " coordinates, its tensor map has " +
             std::to_string(copy.map.rank) + " axes",
         site);
  require_multiple(to, 128, "cp.async.bulk.tensor to " + shared_name(to), site);
  told(barrier, load_box_name, site);
  copy.kind = BulkCopy::LoadBox, copy.name = load_box_name, copy.site = site;
  copy.bytes = box_bytes(copy.map);
  shared_pointer(to, copy.bytes, "cp.async.bulk.tensor to", site);
  copy.address = absolute_address(to), copy.barrier = absolute_address(barrier);
  memcpy(copy.coordinates, box.coordinates, sizeof copy.coordinates);
  issue(copy);
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

void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, Site site) {
  told(barrier, load_name, site);
  BulkCopy copy = linear(to, from, bytes, load_name, site);
  copy.kind = BulkCopy::Load, copy.barrier = absolute_address(barrier);
  issue(copy);
}

void bulk_store(void* to, uint32_t from, uint32_t bytes, bool add_floats, Site site) {
  BulkCopy copy = linear(from, to, bytes, add_floats ? reduce_name : store_name, site);
  copy.kind = add_floats ? BulkCopy::Reduce : BulkCopy::Store;
  issue(copy);
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
  issue(copy);
}

void bulk_commit() { running().bulk_group++; }

// A store that has read its source is done for a wait of `.read`; what it writes comes later. Those that a wait covers
// end in the order that is least expected.
void bulk_wait(uint32_t groups_still_pending, bool only_read) {
  Worker& w = *worker->lead;
  const Thread& t = running();
  if (!w.engine) return;
  if (w.launch->asynchrony == Asynchrony::Late) yield();
  std::vector<BulkCopy>& copies = w.engine->copies;
  for (size_t i = copies.size(); i-- > 0;) {
    BulkCopy& copy = copies[i];
    if (is_load(copy) || copy.thread != &t || t.bulk_group - copy.group <= groups_still_pending) continue;
    read_source(copy);
    if (only_read) continue;
    run_copy(copy);
    write_ends(copy);
    copies.erase(copies.begin() + static_cast<ptrdiff_t>(i));
  }
}

// Where nothing else can run: ends one copy that a thread waits for, the last issued first. False if there is none.
bool finish_awaited_copy(Worker& w) {
  if (!w.engine || w.engine->copies.empty()) return false;
  switch_to_block(w);
  for (size_t i = w.engine->copies.size(); i-- > 0;) {
    const BulkCopy& copy = w.engine->copies[i];
    if (!is_load(copy) || mbarrier_at(copy.barrier, copy.name, copy.site).waiting.empty()) continue;
    finish_load(w, i);
    return true;
  }
  return false;
}

static std::string in_flight(const BulkCopy& copy) {
  return std::string(copy.name) + " of " + std::to_string(copy.bytes) + " bytes " + (is_load(copy) ? "to " : "from ") +
         shared_name(copy.address) + " is in flight, issued at " + place(copy.site);
}

void require_sources_read(const Thread& t) {
  if (!worker->lead->engine) return;
  for (const BulkCopy& copy : worker->lead->engine->copies) {
    if (is_load(copy) || copy.thread != &t || !copy.source.empty()) continue;
    report(whoami() + ": the thread exits while " + in_flight(copy));
    abandon();
  }
}

// When all threads of the block have ended.
void drain_copies(Worker& w) {
  if (!w.engine) return;
  std::vector<BulkCopy>& copies = w.engine->copies;
  for (; !copies.empty(); copies.pop_back()) {
    if (is_load(copies.back())) {
      report(block_name() + ": the block ends while " + in_flight(copies.back()));
      abandon();
    }
    run_copy(copies.back());
    write_ends(copies.back());
  }
}

void forget_copies(Worker& w) {
  if (w.engine) w.engine->copies.clear();
}

}  // namespace baracuda_host
