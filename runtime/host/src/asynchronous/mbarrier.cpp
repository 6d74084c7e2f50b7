// mbarrier: a barrier in shared memory that counts arrivals and bytes. Its state is kept here; the 8 bytes in shared
// memory hold a mark, so that a store over them is found.
#include <string.h>
#include <algorithm>

#include "async_proxy.h"
#include "../check/checker.h"

namespace baracuda_host {

static constexpr uint64_t mark = 0x7ff8ba44c0dabbe5;  // reads as NaN
static constexpr int64_t most_bytes = (1 << 20) - 1;
static constexpr uint32_t most_arrivals = (1 << 20) - 1;

static std::string name_of(uint32_t address) { return "the mbarrier at " + shared_name(address); }

static uint64_t* memory_of(uint32_t address, const char* instruction, Site site) {
  if (address % 8)
    fail(std::string(instruction) + " of " + shared_name(address) + ", which is not a multiple of 8 bytes", site);
  return static_cast<uint64_t*>(shared_pointer(address, 8, instruction, site));
}

Mbarrier& mbarrier_at(uint32_t address, const char* instruction, Site site) {
  const uint64_t* memory = memory_of(address, instruction, site);
  Worker& owner = block_of(address, instruction, site);
  const auto entry = owner.mbarriers.find(offset_in_block(address));
  if (entry == owner.mbarriers.end()) {
    const auto before = owner.invalidated.find(offset_in_block(address));
    fail(std::string(instruction) + " of " + shared_name(address) +
             (before == owner.invalidated.end() ? ", where no mbarrier was initialised"
                                                : ", an mbarrier that was invalidated at " + place(before->second)),
         site);
  }
  if (*memory != mark)
    fail(std::string(instruction) + " of " + name_of(address) + ", which a store has overwritten", site);
  return entry->second;
}

void mbarrier_init(uint32_t address, uint32_t arrivals, Site site) {
  uint64_t* memory = memory_of(address, "mbarrier.init", site);
  if (!arrivals || arrivals > most_arrivals)
    fail("mbarrier.init with a count of " + std::to_string(arrivals) + ", which is not 1 to 1048575", site);
  if (worker->mbarriers.count(address))
    fail("mbarrier.init of " + name_of(address) + ", which is in use; needs mbarrier.inval first", site);
  if (checker) checker->access(reinterpret_cast<char*>(memory), 8, Access::Write);
  *memory = mark;
  worker->invalidated.erase(address);
  Mbarrier& barrier = worker->mbarriers[address];
  barrier.owner = worker;
  barrier.address = address;
  barrier.arrivals = barrier.missing = arrivals;
  barrier.made_by = running().linear;
}

void mbarrier_inval(uint32_t address, Site site) {
  Mbarrier& barrier = mbarrier_at(address, "mbarrier.inval", site);
  for (const auto* threads : {&barrier.waiting, &barrier.resuming})
    if (!threads->empty())
      fail("mbarrier.inval of " + name_of(address) + ", where thread " + std::to_string(threads->front()) + " waits",
           site);
  if (barrier.bytes)
    fail("mbarrier.inval of " + name_of(address) + ", which expects " + std::to_string(barrier.bytes) + " bytes", site);
  uint64_t* memory = memory_of(address, "mbarrier.inval", site);
  if (checker) checker->access(reinterpret_cast<char*>(memory), 8, Access::Write);
  worker->mbarriers.erase(address);
  worker->invalidated[address] = site;
  memset(memory, 0xff, 8);
}

static void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.missing || barrier.bytes) return;
  barrier.phase++;
  barrier.missing = barrier.arrivals;
  barrier.expected = 0;
  barrier.in_phase_before.swap(barrier.arrived);
  barrier.arrived.clear();
  if (checker) {
    barrier.seen.swap(barrier.clock);
    barrier.clock.clear();
  }
  for (const uint32_t i : barrier.waiting) make_ready(*barrier.owner, i);
  barrier.resuming.insert(barrier.resuming.end(), barrier.waiting.begin(), barrier.waiting.end());
  barrier.waiting.clear();
}

void mbarrier_arrive(uint32_t address, uint32_t bytes, Site site) {
  // Lanes wait and go on together, so none gets ahead of the others by what it arrives at.
  if (worker->ready.lanes[running().linear / 32]) yield();
  Mbarrier& barrier = mbarrier_at(address, bytes ? "mbarrier.arrive.expect_tx" : "mbarrier.arrive", site);
  barrier.bytes += bytes;
  barrier.expected += bytes;
  if (barrier.owner == worker) barrier.arrived.push_back(running().linear);
  if (barrier.bytes > most_bytes)
    fail(name_of(address) + " expects " + std::to_string(barrier.bytes) + " bytes, more than 1048575", site);
  if (checker) checker->arrive(in_cluster(*worker, running().linear), barrier.clock);
  if (!barrier.missing)
    fail("mbarrier.arrive of " + name_of(address) + ", where all " + std::to_string(barrier.arrivals) +
             " have arrived in this phase",
         site);
  barrier.missing--;
  end_phase_if_complete(barrier);
}

void mbarrier_receive(uint32_t address, uint32_t bytes, Site site) {
  Mbarrier& barrier = mbarrier_at(address, "complete_tx", site);
  barrier.bytes -= bytes;
  if (barrier.bytes < -most_bytes)
    fail(name_of(address) + " has received more than it expects by " + std::to_string(-barrier.bytes) + " bytes", site);
  end_phase_if_complete(barrier);
}

void mbarrier_wait(uint32_t address, uint32_t parity, Site site) {
  if (parity > 1) fail("mbarrier.try_wait.parity with parity " + std::to_string(parity), site);
  Mbarrier& barrier = mbarrier_at(address, "mbarrier.try_wait", site);
  if (barrier.owner != worker) fail("mbarrier.try_wait of " + name_of(address) + "; needs one of the own block", site);
  Worker& w = *worker;
  Thread& t = running();
  if ((barrier.phase & 1) == parity) {
    const uint64_t ending = barrier.phase;
    barrier.waiting.push_back(t.linear);
    t.site = site;
    t.what = "mbarrier.try_wait";
    t.awaited = &barrier;
    t.state = State::AtMbarrier;
    park(w, t);
    t.awaited = nullptr;
    barrier.resuming.erase(std::find(barrier.resuming.begin(), barrier.resuming.end(), t.linear));
    if (barrier.phase != ending + 1)
      fail("phase " + std::to_string(ending + 1) + " of " + name_of(address) +
               " ended before this thread saw the end of phase " + std::to_string(ending),
           site);
  }
  if (checker) checker->leave(in_cluster(w, t.linear), barrier.seen);
}

// "for phase 1 of the mbarrier at byte 1024 of dynamic shared memory, which lacks 1 of 8 arrivals (in the phase before,
// thread 160 arrived) and 4096 of 8192 bytes"
std::string lacking(const Mbarrier& barrier) {
  std::vector<uint32_t> before = barrier.in_phase_before, now = barrier.arrived, absent;
  std::sort(before.begin(), before.end());
  std::sort(now.begin(), now.end());
  std::set_difference(before.begin(), before.end(), now.begin(), now.end(), std::back_inserter(absent));
  const bool names = barrier.missing && !absent.empty();
  return "for phase " + std::to_string(barrier.phase) + " of " + name_of(barrier.address) + ", which lacks " +
         std::to_string(barrier.missing) + " of " + std::to_string(barrier.arrivals) + " arrivals " +
         (names ? "(in the phase before, thread " + ranges(absent) + " arrived) " : "") + "and " +
         (barrier.bytes < 0 ? "has " + std::to_string(-barrier.bytes) + " bytes too many"
                            : std::to_string(barrier.bytes) + " of " + std::to_string(barrier.expected) + " bytes");
}

void fence_proxy_async() {
  if (checker) checker->fence_proxy();
  for (auto& [address, barrier] : worker->mbarriers)
    if (barrier.made_by == running().linear) barrier.published = true;
}

}  // namespace baracuda_host
