// Which thread of a block runs next.
#include <sched.h>
#include <string.h>

#include "async_proxy.h"
#include "checker.h"

namespace baracuda_host {

__thread ThreadView* thread BARACUDA_HOST_FAST_TLS;
__thread BlockView* block BARACUDA_HOST_FAST_TLS;
__thread Worker* worker BARACUDA_HOST_FAST_TLS;

void make_ready(Worker& w, uint32_t index) {
  w.threads[index].state = State::Ready;
  w.ready.add(index);
}

uint32_t next_random(Worker& w) {  // xorshift32
  w.random ^= w.random << 13;
  w.random ^= w.random >> 17;
  return w.random ^= w.random << 5;
}

bool happens_now(Worker& w) {
  const Asynchrony asynchrony = w.launch->asynchrony;
  return asynchrony == Asynchrony::Early || (asynchrony == Asynchrony::Random && next_random(w) % 2);
}

static uint32_t random_bit(Worker& w, uint32_t set) {
  for (uint32_t skip = next_random(w) % __builtin_popcount(set); skip; skip--) set &= set - 1;
  return __builtin_ctz(set);
}

// Takes the next runnable thread, null if there is none. Forward order stays in a warp while it can, then
// takes the next higher one: a warp's threads share cache lines.
static Thread* pick(Worker& w) {
  while (!w.ready.warps && finish_awaited_copy(w)) {
  }
  if (!w.ready.warps) {
    if (!w.yielded.warps) return nullptr;
    std::swap(w.ready, w.yielded);
  }
  const uint32_t warps = w.ready.warps;
  uint32_t warp = w.current_warp, lane;
  switch (w.launch->order) {
    case Order::Forward:
      if (!w.ready.lanes[warp]) {
        const uint32_t higher = warps & ~((2u << warp) - 1u);
        warp = __builtin_ctz(higher ? higher : warps);
      }
      lane = __builtin_ctz(w.ready.lanes[warp]);
      break;
    case Order::Reverse:
      warp = 31 - __builtin_clz(warps);
      lane = 31 - __builtin_clz(w.ready.lanes[warp]);
      break;
    default:
      warp = random_bit(w, warps);
      lane = random_bit(w, w.ready.lanes[warp]);
  }
  w.ready.remove(warp, lane);
  w.current_warp = warp;
  return &w.threads[warp * 32 + lane];
}

static std::string ranges(const std::vector<uint32_t>& sorted) {
  std::string text;
  for (size_t i = 0, j; i < sorted.size(); i = j + 1) {
    for (j = i; j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1;) j++;
    if (text.size() > 60) return text + ",...";
    text += (i ? "," : "") + std::to_string(sorted[i]) + (j > i ? "-" + std::to_string(sorted[j]) : "");
  }
  return text;
}

static void report_deadlock(Worker& w) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> groups;
  for (uint32_t i = 0; i < w.thread_count; i++) {
    const Thread& t = w.threads[i];
    std::string where = t.state == State::Done ? "exited" : "in " + std::string(t.what) + " at " + place(t.site);
    if (t.state == State::AtMbarrier) where += " " + lacking(*t.awaited);
    if (t.state == State::AtRegisters) where += " " + registers_lacking(w, t);
    size_t g = 0;
    while (g < groups.size() && groups[g].first != where) g++;
    if (g == groups.size()) groups.push_back({where, {}});
    groups[g].second.push_back(i);
  }
  std::string finding = block_name() + ": deadlock, no thread can run";
  for (const auto& group : groups) finding += "; threads " + ranges(group.second) + " " + group.first;
  report(finding);
}

[[noreturn]] static void deadlock(Worker& w) {
  report_deadlock(w);
  abandon();
}

static void exit_thread(Worker& w, Thread& t) {
  require_copies_awaited(t);
  require_sources_read(t);
  require_products_awaited(t.linear / 32);
  t.state = State::Done;
  w.live--;
  w.live_lanes[t.linear / 32] &= ~(1u << t.linear % 32);
  forget_copies(t);
  if (!w.live) drain_copies(w);
  release_if_complete(w);
  release_warp_groups(w, t.linear / 32);
}

// A fiber runs thread after thread: while the next one is fresh it starts on the same stack, so a block whose
// threads never wait needs one stack and not one switch.
static void fiber_main() {
  Worker& w = *worker;
  for (;;) {
    w.launch->kernel->entry(w.launch->arguments);
    Thread& done = running();
    exit_thread(w, done);
    Thread* next = pick(w);
    if (!next && w.live) deadlock(w);
    if (next) {
      thread = next;
      if (next->state == State::Fresh) {
        next->fiber = done.fiber;
        next->state = State::Running;
        continue;
      }
      next->state = State::Running;
    }
    w.stacks.give(done.fiber);
    fiber_switch(*done.fiber, next ? *next->fiber : w.home);
  }
}

static void start(Worker& w, Thread& fresh) {
  fresh.fiber = w.stacks.take();
  if (!fresh.fiber) {
    report(block_name() + ": out of memory for thread stacks");
    abandon();
  }
  fiber_prepare(*fresh.fiber, fiber_main);
}

void park(Worker& w, Thread& self) {
  if (aborting.load(std::memory_order_relaxed)) abandon();
  Thread* next = pick(w);
  if (!next) deadlock(w);
  thread = next;
  if (next->state == State::Fresh) start(w, *next);
  next->state = State::Running;
  if (next != &self) fiber_switch(*self.fiber, *next->fiber);
}

void yield() {
  Worker& w = *worker;
  Thread& self = running();
  // Alone, this thread can only be waiting for another block, so for another OS thread.
  if (!w.ready.warps && !w.yielded.warps) sched_yield();
  self.state = State::Ready;
  w.yielded.add(self.linear);
  park(w, self);
}

static void reset_block(Worker& w, uint64_t number) {
  const Launch& launch = *w.launch;
  const dim3 grid = launch.grid;
  w.view.index = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                  static_cast<unsigned>(number / grid.x / grid.y)};
  w.ready = w.yielded = ThreadSet{};
  for (uint32_t i = 0; i < w.thread_count; i++) {
    w.threads[i].state = State::Fresh;
    w.threads[i].bulk_group = 0;
  }
  for (uint32_t i = 0; i < w.warp_count; i++) {
    const uint32_t lanes = w.thread_count - i * 32 >= 32 ? ~0u : (1u << w.thread_count % 32) - 1;
    w.ready.add_lanes(i, lanes);
    w.live_lanes[i] = lanes;
    w.waiting_lanes[i] = 0;
  }
  for (NamedBarrier& barrier : w.named) {
    barrier.arrived = 0;
    barrier.waiting.clear();
    barrier.clock.clear();
  }
  w.mbarriers.clear();
  forget_copies(w);
  forget_products(w);
  reset_registers(w);
  w.live = w.thread_count;
  w.current_warp = w.at_barrier = w.predicates = 0;
  w.random = static_cast<uint32_t>(number * 2654435761u) ^ launch.seed * 747796405u;
  if (!w.random) w.random = 1;
  for (int i = 0; i < 4; i++) next_random(w);
}

// What a block finds in shared memory is undefined on a GPU; all ones read as NaN.
static void poison_shared(Worker& w) {
  const Kernel& kernel = *w.launch->kernel;
  if (kernel.dynamic_shared) memset(w.view.dynamic_shared, 0xff, kernel.dynamic_shared);
  if (kernel.static_shared > 1)
    memset(kernel.shared_anchor() - kernel.anchor_offset, 0xff, kernel.static_shared);
}

void run_block(Worker& w, uint64_t number) {
  reset_block(w, number);
  poison_shared(w);
  if (checker) checker->begin_block(w, number);
  Thread& first = *pick(w);
  thread = &first;
  start(w, first);
  first.state = State::Running;
  fiber_switch(w.home, *first.fiber);
}

}  // namespace baracuda_host
