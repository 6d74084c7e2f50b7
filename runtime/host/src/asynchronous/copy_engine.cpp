// cp.async.bulk: what the copy engine does for a thread, somewhere between the instruction and the wait that covers it.
#include "copy_engine.h"

#include <string.h>
#include <algorithm>

#include "../check/checker.h"
#include "boxes.h"

namespace baracuda_host {

bool is_load(const BulkCopy& copy) { return copy.kind <= BulkCopy::Send; }

// Where its bytes in shared memory lie now: static shared memory moves when another block of the cluster runs.
static char* shared_of(const BulkCopy& copy) {
  return static_cast<char*>(shared_pointer(copy.address, copy.bytes, copy.name, copy.site));
}

// Calls visit(byte from the copy's first in shared memory, bytes in global memory, how many).
template <class Visit>
static void each_store(const BulkCopy& copy, Visit visit) {
  if (copy.kind == BulkCopy::Store) return visit(0u, copy.global, copy.bytes);
  each_piece(copy.address, copy.map, copy.coordinates, [&](uint32_t at, char* memory, uint32_t bytes) {
    if (memory) visit(at, memory, bytes);
  });
}

static void read_source(BulkCopy& copy) {
  if (!copy.source.empty()) return;
  const char* shared = shared_of(copy);
  copy.source.assign(shared, shared + copy.bytes);
  if (checker)
    each_store(copy, [&](uint32_t at, char*, uint32_t bytes) { checker->access(shared + at, bytes, Access::Read); });
}

static void run_store(BulkCopy& copy) {
  read_source(copy);
  each_store(copy, [&](uint32_t at, char* memory, uint32_t bytes) {
    update(copy.how, copy.of, memory, copy.source.data() + at, bytes);
    if (checker) checker->access(memory, bytes, Access::Write);  // again: it is there only now
  });
}

static void run_load(const BulkCopy& copy) {
  char* shared = shared_of(copy);
  if (copy.kind == BulkCopy::Load) memcpy(shared, copy.global, copy.bytes);
  if (copy.kind == BulkCopy::Send) memcpy(shared, &copy.value, copy.bytes);
  if (copy.kind != BulkCopy::LoadBox) return;
  each_piece(copy.address, copy.map, copy.coordinates, [&](uint32_t at, const char* memory, uint32_t bytes) {
    if (memory) memcpy(shared + at, memory, bytes);
    else memset(shared + at, copy.map.fill_nan ? 0xff : 0, bytes);
  });
}

static void finish_load(Worker& w, size_t index) {
  const BulkCopy copy = std::move(w.engine->copies[index]);
  w.engine->copies.erase(w.engine->copies.begin() + static_cast<ptrdiff_t>(index));
  run_load(copy);
  w.engine->note_swizzle(copy);
  if (checker) {
    const PlaceInBlock place = place_in_block(copy.address);
    checker->bulk_copy_ends(place.rank, place.address, copy.bytes);
    checker->pass_on(mbarrier_at(copy.barrier, copy.name, copy.site).clock, copy.clock);
  }
  mbarrier_receive(copy.barrier, copy.bytes, copy.site);
}

static void look_at_global(const BulkCopy& copy, const char* at, uint32_t bytes, Access kind) {
  checker->need(Space::Global, at, copy.name);
  checker->access(at, bytes, kind);
}

// Check mode, when the copy is issued.
static void look_at(BulkCopy& copy) {
  if (copy.kind == BulkCopy::Load) look_at_global(copy, copy.global, copy.bytes, Access::Read);
  if (copy.kind == BulkCopy::LoadBox)
    each_run(copy.map, copy.coordinates, [&](uint32_t, const char* from, uint32_t bytes) {
      if (from) look_at_global(copy, from, bytes, Access::Read);
    });
  if (is_load(copy)) {
    const PlaceInBlock place = place_in_block(copy.address);
    checker->bulk_copy_begins(place.rank, place.address, copy.bytes, copy.clock);
    return;
  }
  const char* shared = shared_of(copy);
  each_store(copy, [&](uint32_t at, const char* memory, uint32_t bytes) {
    if (copy.how != Update::Store) look_at_global(copy, memory, bytes, Access::Read);
    look_at_global(copy, memory, bytes, Access::Write);
    checker->access(shared + at, bytes, Access::Peek);
  });
}

static bool overlap(const std::vector<Bytes>& sorted, const std::vector<Bytes>& others) {
  for (size_t i = 0, j = 0; i < sorted.size() && j < others.size();) {
    if (sorted[i].first < others[j].end && others[j].first < sorted[i].end) return true;
    (sorted[i].end < others[j].end ? i : j)++;
  }
  return false;
}

// Copies in flight have no order, but sums may be added to in any.
static void require_alone(BulkCopy& copy) {
  each_store(copy, [&](uint32_t, char* memory, uint32_t bytes) { copy.written.push_back({memory, memory + bytes}); });
  std::sort(copy.written.begin(), copy.written.end(), [](Bytes a, Bytes b) { return a.first < b.first; });
  for (const Worker* lead : worker->os->blocks) {
    if (lead->rank || !lead->engine) continue;
    for (const BulkCopy& other : lead->engine->copies)
      if (!is_load(other) && (copy.how == Update::Store || copy.how != other.how) &&
          overlap(copy.written, other.written))
        fail(std::string(copy.name) + " where " + other.name + " of " + std::to_string(other.bytes) +
                 " bytes is in flight, issued at " + place(other.site) + "; needs cp.async.bulk.wait_group for it",
             copy.site);
  }
}

void issue(BulkCopy copy) {
  Worker& lead = *worker->lead;
  if (!lead.engine) lead.engine = new CopyEngine;
  copy.thread = &running();
  copy.group = running().bulk_group;
  if (!is_load(copy)) require_alone(copy);
  if (checker) look_at(copy);
  if (is_load(copy)) memset(shared_of(copy), 0xff, copy.bytes);
  const bool now = happens_now(*worker);
  if (now && !is_load(copy)) return run_store(copy);
  lead.engine->copies.push_back(std::move(copy));
  if (now) finish_load(lead, lead.engine->copies.size() - 1);
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
    run_store(copy);
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

// When all threads of the running block have ended: nothing is on its way to its memory. With the last of the cluster,
// what was stored gets to global memory.
void drain_copies(Worker& w, bool last) {
  if (!w.lead->engine) return;
  std::vector<BulkCopy>& copies = w.lead->engine->copies;
  for (const BulkCopy& copy : copies) {
    if (!is_load(copy) || place_in_block(copy.address).rank != w.rank) continue;
    report(block_name() + ": the block ends while " + in_flight(copy));
    abandon();
  }
  for (; last && !copies.empty(); copies.pop_back()) run_store(copies.back());
}

void forget_copies(Worker& w) {
  if (!w.engine) return;
  w.engine->copies.clear();
  w.engine->swizzles.clear();
}

// Boxes keep their swizzle until something else is copied there.
void CopyEngine::note_swizzle(const BulkCopy& copy) {
  const uint32_t first = copy.address, end = first + copy.bytes;
  const auto gone = [&](const Swizzled& other) { return other.first < end && first < other.end; };
  swizzles.erase(std::remove_if(swizzles.begin(), swizzles.end(), gone), swizzles.end());
  if (copy.kind == BulkCopy::LoadBox) swizzles.push_back({first, end, 16u << copy.map.swizzle});
}

uint32_t swizzle_of_box(uint32_t address) {
  const CopyEngine* engine = worker->lead->engine;
  if (!engine) return 0;
  address = absolute_address(address);
  for (const auto& box : engine->swizzles)
    if (address >= box.first && address < box.end) return box.bytes;
  return 0;
}

}  // namespace baracuda_host
