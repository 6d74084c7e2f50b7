// cp.async: the copy is deferred to the wait that covers it, so that a missing or too weak wait shows.
#include <string.h>

#include "../check/checker.h"
#include "../threads/state.h"

namespace baracuda_host {

struct AsyncCopy {
  void* shared;
  const void* global;
  uint16_t bytes, source_bytes;
  uint32_t group;
  Site site;
  Calls calls;  // in check mode
};

struct AsyncCopies {
  static constexpr uint32_t capacity = 256;
  AsyncCopy queue[capacity];
  uint32_t head = 0, count = 0, group = 0;
};

static AsyncCopies& copies_of(Thread& t) {
  if (!t.copies) t.copies = new AsyncCopies;
  return *t.copies;
}

void copy_async(void* shared, const void* global, int bytes, int source_bytes, Site site) {
  if (bytes != 4 && bytes != 8 && bytes != 16) fail("cp.async size is not 4, 8 or 16", site);
  if (source_bytes < 0 || source_bytes > bytes) fail("cp.async source size is not within its size", site);
  const uintptr_t source = source_bytes ? reinterpret_cast<uintptr_t>(global) : 0;
  if ((reinterpret_cast<uintptr_t>(shared) | source) % bytes) fail("cp.async address is not aligned to its size", site);
  AsyncCopies& copies = copies_of(running());
  if (copies.count == AsyncCopies::capacity) fail("more cp.async in flight than the host device keeps (256)", site);
  if (checker) {
    checker->need(Space::Shared, static_cast<char*>(shared), "cp.async to");
    if (source_bytes) {
      checker->need(Space::Global, static_cast<const char*>(global), "cp.async from");
      checker->access(static_cast<const char*>(global), source_bytes, Access::Read);
    }
    checker->copy_begins(static_cast<char*>(shared), bytes);
  }
  memset(shared, 0xff, bytes);
  copies.queue[(copies.head + copies.count++) % AsyncCopies::capacity] = {
      shared,       global, static_cast<uint16_t>(bytes),        static_cast<uint16_t>(source_bytes),
      copies.group, site,   checker ? checker->calls() : Calls{}};
}

void copy_async_commit() { copies_of(running()).group++; }

void copy_async_wait(int groups_still_pending) {
  AsyncCopies& copies = copies_of(running());
  while (copies.count) {
    const AsyncCopy& copy = copies.queue[copies.head];
    if (static_cast<int>(copies.group - copy.group) <= groups_still_pending) return;
    if (copy.source_bytes) memcpy(copy.shared, copy.global, copy.source_bytes);
    memset(static_cast<char*>(copy.shared) + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
    if (checker) checker->copy_ends(static_cast<char*>(copy.shared), copy.bytes);
    copies.head = (copies.head + 1) % AsyncCopies::capacity;
    copies.count--;
  }
}

void require_copies_awaited(Thread& t) {
  if (!t.copies || !t.copies->count) return;
  const AsyncCopy& copy = t.copies->queue[t.copies->head];
  const std::string issued = checker ? checker->at(copy.calls) : " at " + place(copy.site);
  report(whoami() + ": the thread exits while cp.async is in flight, issued" + issued);
  abandon();
}

void forget_copies(Thread& t) {
  if (t.copies) t.copies->head = t.copies->count = t.copies->group = 0;
}

}  // namespace baracuda_host
