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

static uint32_t xorshift(uint32_t& random) {
  random ^= random << 13;
  random ^= random >> 17;
  return random ^= random << 5;
}
static uint32_t seeded(uint32_t number, uint32_t seed) {
  uint32_t random = (number * 2654435761u) ^ seed * 747796405u;
  if (!random) random = 1;
  for (int i = 0; i < 4; i++) xorshift(random);
  return random;
}
uint32_t next_random(Worker& w) { return xorshift(w.random); }

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

// The next block with a runnable thread. A block whose threads have all yielded, as those that wait for another block
// do, may look again while that one runs.
static Worker* ready_block(Worker& w) {
  OsThread& os = *w.os;
  const auto count = static_cast<uint32_t>(os.blocks.size());
  const bool random = os.takes_turns;
  const uint32_t own = w.slot * w.launch->cluster() + w.rank, skip = random ? xorshift(os.random) % count : 0;
  for (uint32_t i = 0; i < count; i++) {
    Worker* other = os.blocks[(own + skip + i) % count];
    if (other->ready.warps) return other;
    if (!random || other == &w || !other->yielded.warps || xorshift(os.random) % 4) continue;
    std::swap(other->ready, other->yielded);
    return other;
  }
  return nullptr;
}

static Thread* pick_elsewhere(Worker& w) {
  for (;;) {
    if (Worker* next = ready_block(w)) {
      w.os->stretch = 1u << xorshift(w.os->random) % 12;  // short and long ones, since blocks may be far apart
      switch_to_block(*next);
      return pick_ready(*next);
    }
    const auto& blocks = w.os->blocks;
    if (std::any_of(blocks.begin(), blocks.end(), [](Worker* b) { return !b->rank && finish_awaited_copy(*b); }))
      continue;
    bool yielded = false;
    for (Worker* other : blocks) {
      yielded |= other->yielded.warps != 0;
      std::swap(other->ready, other->yielded);
    }
    if (!yielded) return nullptr;
  }
}

// Takes the next runnable thread and makes its block the running one; null if there is none. A block goes on while it
// can, since a switch costs more than a thread; where blocks take turns, for a stretch. What runs beside the threads
// goes on before threads that have yielded.
static Thread* pick(Worker& w) {
  const bool stays = !w.os->takes_turns || w.os->stretch--;
  return w.ready.warps && stays ? pick_ready(w) : pick_elsewhere(w);
}

std::string ranges(const std::vector<uint32_t>& sorted) {
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
  for (Worker* other : w.os->blocks) {
    if (!other->live) continue;
    switch_to_block(*other);
    report_deadlock(*other);
  }
  abandon();
}

static bool any_live(const std::vector<Worker*>& blocks) {
  return std::any_of(blocks.begin(), blocks.end(), [](const Worker* w) { return w->live; });
}

static void begin_cluster(Worker& lead);

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
  if (w.live) return;
  const bool last = !any_live(w.lead->blocks);
  drain_copies(w, last);
  if (last) begin_cluster(*w.lead);
}

// A fiber runs thread after thread: while the next one is fresh it starts on the same stack, so blocks whose threads
// never wait need one stack and not one switch.
static void fiber_main() {
  const Launch& launch = *worker->launch;
  for (;;) {
    launch.kernel->entry(launch.arguments);
    Fiber* fiber = running().fiber;
    OsThread& os = *worker->os;
    exit_thread(*worker, running());
    Thread* next = pick(*worker);
    if (!next && any_live(os.blocks)) deadlock(*worker);
    if (next) {
      const bool fresh = next->state == State::Fresh;
      thread = next;
      next->state = State::Running;
      if (fresh) {
        next->fiber = fiber;
        continue;
      }
    }
    os.stacks.give(fiber);
    fiber_switch(*fiber, next ? *next->fiber : os.home);
  }
}

static void start(Thread& fresh) {
  fresh.fiber = worker->os->stacks.take();
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
  if (next->state == State::Fresh) start(*next);
  next->state = State::Running;
  if (next != &self) fiber_switch(*self.fiber, *next->fiber);
}

// Where a thread looks at what other blocks do, or shows them something, blocks take turns more often than elsewhere.
static bool ends_stretch(Worker& w) {
  if (w.launch->alive == 1 || xorshift(w.os->random) % 4) return false;
  w.os->stretch = 0;
  return true;
}

void yield() {
  Worker& w = *worker;
  Thread& self = running();
  ends_stretch(w);
  // Alone, this thread can only be waiting for another block, so for another OS thread.
  if (!w.ready.warps && !w.yielded.warps && w.os->blocks.size() == 1) sched_yield();
  self.state = State::Ready;
  w.yielded.add(self.linear);
  park(w, self);
}

void let_blocks_run() {
  Worker& w = *worker;
  if (!ends_stretch(w)) return;
  make_ready(w, running().linear);
  park(w, running());
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
    w.threads[i].met = w.threads[i].stored = false;
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
  w.invalidated.clear();
  forget_copies(*w.lead);
  forget_products(w);
  reset_registers(w);
  w.live = w.thread_count;
  w.current_warp = w.at_barrier = w.predicates = 0;
  w.random = seeded(static_cast<uint32_t>(number), launch.seed);
}

// What a block finds in shared memory is undefined on a GPU; all ones read as NaN.
static void poison_shared(Worker& w) {
  const Kernel& kernel = *w.launch->kernel;
  if (kernel.dynamic_shared) memset(w.view.dynamic_shared, 0xff, kernel.dynamic_shared);
  if (kernel.static_shared <= 1) return;
  if (w.os->blocks.size() > 1) w.away.assign(kernel.static_shared, static_cast<char>(0xff));
  if (&w == worker) memset(static_shared(kernel), 0xff, kernel.static_shared);
}

// The next block or cluster that nobody has begun takes the place of one that has ended.
static void begin_cluster(Worker& lead) {
  uint64_t first;
  if (!take_cluster(*lead.launch, first)) return;
  lead.cluster_barrier = {};
  for (Worker* w : lead.blocks) {
    reset_block(*w, first + w->rank);
    poison_shared(*w);
  }
  if (checker) checker->begin_blocks(lead, first);
}

void run_blocks(OsThread& os) {
  const Launch& launch = *os.blocks[0]->launch;
  os.random = seeded(0, launch.seed);
  os.stretch = 0;
  os.takes_turns = os.blocks.size() > 1 && (launch.alive > 1 || launch.order == Order::Random);
  worker = os.blocks[0];
  block = &worker->view;
  for (Worker* w : os.blocks) w->live = 0, w->ready = w->yielded = ThreadSet{};
  for (Worker* w : os.blocks)
    if (!w->rank) begin_cluster(*w);
  Thread* first = pick(*worker);
  if (!first) return;
  thread = first;
  start(*first);
  first->state = State::Running;
  fiber_switch(os.home, *first->fiber);
}

}  // namespace baracuda_host
