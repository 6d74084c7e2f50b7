// Which thread of a block runs next.
#include <sched.h>
#include <string.h>

#include "../asynchronous/async_proxy.h"
#include "../check/checker.h"

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

// Takes the next runnable thread of a block that has one. Forward order stays in a warp while it can, then takes the
// next higher one: a warp's threads share cache lines.
static Thread* pick_ready(Worker& w) {
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
    default: warp = random_bit(w, warps); lane = random_bit(w, w.ready.lanes[warp]);
  }
  w.ready.remove(warp, lane);
  w.current_warp = warp;
  return &w.threads[warp * 32 + lane];
}

// The next block of the cluster with a runnable thread.
static Worker* ready_block(Worker& w) {
  const auto& blocks = w.lead->blocks;
  const auto count = static_cast<uint32_t>(blocks.size());
  const uint32_t skip = w.launch->order == Order::Random ? next_random(*w.lead) % count : 0;
  for (uint32_t i = 0; i < count; i++)
    if (Worker* other = blocks[(w.rank + skip + i) % count]; other->ready.warps) return other;
  return nullptr;
}

static Thread* pick_elsewhere(Worker& w) {
  for (;;) {
    if (Worker* next = ready_block(w)) {
      switch_to_block(*next);
      return pick_ready(*next);
    }
    if (finish_awaited_copy(*w.lead)) continue;
    bool yielded = false;
    for (Worker* member : w.lead->blocks) {
      yielded |= member->yielded.warps != 0;
      std::swap(member->ready, member->yielded);
    }
    if (!yielded) return nullptr;
  }
}

// Takes the next runnable thread of the cluster and makes its block the running one; null if there is none. A block
// goes on while it can, since a switch costs more than a thread; in random order it now and then does not. What runs
// beside the threads goes on before threads that have yielded.
static Thread* pick(Worker& w) {
  const bool stays = w.launch->cluster() == 1 || w.launch->order != Order::Random || next_random(*w.lead) % 64;
  return w.ready.warps && stays ? pick_ready(w) : pick_elsewhere(w);
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
  for (Worker* member : w.lead->blocks) {
    if (!member->live) continue;
    switch_to_block(*member);
    report_deadlock(*member);
  }
  abandon();
}

static bool any_live(const Worker& w) {
  return w.live ||
         std::any_of(w.lead->blocks.begin(), w.lead->blocks.end(), [](const Worker* member) { return member->live; });
}

static void exit_thread(Worker& w, Thread& t) {
  require_copies_awaited(t);
  require_sources_read(t);
  require_products_awaited(t.linear / 32);
  t.state = State::Done;
  w.live--;
  w.live_lanes[t.linear / 32] &= ~(1u << t.linear % 32);
  forget_copies(t);
  release_if_complete(w);
  release_warp_groups(w, t.linear / 32);
  if (w.lead->cluster_barrier.arrived) release_cluster_if_complete(*w.lead);
  if (!any_live(w)) drain_copies(*w.lead);
}

static void start(Worker& w, Thread& fresh);

// A fiber runs thread after thread: while the next one is fresh it starts on the same stack, so a block whose
// threads never wait needs one stack and not one switch.
static void fiber_main() {
  Worker& w = *worker;
  for (;;) {
    w.launch->kernel->entry(w.launch->arguments);
    Thread& done = running();
    exit_thread(w, done);
    Thread* next = pick(w);
    if (!next && any_live(w)) deadlock(w);
    if (next) {
      thread = next;
      if (next->state == State::Fresh) {
        if (worker == &w) {
          next->fiber = done.fiber;
          next->state = State::Running;
          continue;
        }
        start(*worker, *next);
      }
      next->state = State::Running;
    }
    w.stacks.give(done.fiber);
    fiber_switch(*done.fiber, next ? *next->fiber : w.lead->home);
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
  if (next->state == State::Fresh) start(*worker, *next);
  next->state = State::Running;
  if (next != &self) fiber_switch(*self.fiber, *next->fiber);
}

void yield() {
  Worker& w = *worker;
  Thread& self = running();
  // Alone, this thread can only be waiting for another block, so for another OS thread.
  if (!w.ready.warps && !w.yielded.warps && w.launch->cluster() == 1) sched_yield();
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
    w.threads[i].arrived_in_cluster = w.threads[i].to_wait_in_cluster = false;
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
  forget_copies(*w.lead);
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
  if (w.rank) w.away.assign(kernel.static_shared, static_cast<char>(0xff));
  else if (kernel.static_shared > 1) memset(static_shared(kernel), 0xff, kernel.static_shared);
}

void run_blocks(Worker& lead, uint64_t first) {
  lead.cluster_barrier = {};
  for (Worker* w : lead.blocks) {
    reset_block(*w, first + w->rank);
    poison_shared(*w);
  }
  if (lead.blocks.size() > 1) lead.away.resize(lead.launch->kernel->static_shared);
  if (checker) checker->begin_blocks(lead, first);
  Thread& thread_0 = *pick(lead);
  thread = &thread_0;
  start(*worker, thread_0);
  thread_0.state = State::Running;
  fiber_switch(lead.home, *thread_0.fiber);
  switch_to_block(lead);
}

}  // namespace baracuda_host
