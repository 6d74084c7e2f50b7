// Barriers of a block.
#include <string.h>

#include "../../include/baracuda_host/interface_sm90.h"  // by which clang knows what is visible
#include "../check/checker.h"
#include "state.h"

namespace baracuda_host {

static bool same(Site a, Site b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }

static std::string waits(const Thread& t, bool by_calls) {
  return std::string(t.what) + (by_calls ? checker->at(t.calls) : " at " + place(t.site));
}

static void report_divergence(const Thread& a, const Thread& b) {
  const bool by_calls = same(a.site, b.site);
  report(block_name() + ": divergent barrier, thread " + std::to_string(a.linear) + " waits in " + waits(a, by_calls) +
         " and thread " + std::to_string(b.linear) + " in " + waits(b, by_calls));
  abandon();
}

// In check mode: threads may leave between two barriers, but not when others come to the one that they left once more.
static void require_nobody_left(const Worker& w, const Thread& first) {
  for (uint32_t i = 0; i < w.thread_count; i++) {
    const Thread& t = w.threads[i];
    if (t.state != State::Done || !t.met || memcmp(&t.calls, &first.calls, sizeof t.calls)) continue;
    report(block_name() + ": divergent barrier, thread " + std::to_string(i) + " has exited and thread " +
           std::to_string(first.linear) + " waits in " + waits(first, true));
    abandon();
  }
}

static void release(Worker& w) {
  const Thread* first = nullptr;
  for (uint32_t i = 0; i < w.thread_count; i++) {
    Thread& t = w.threads[i];
    if (t.state != State::AtBlockBarrier) continue;
    if (!first) first = &t;
    if (!same(t.site, first->site) || (checker && memcmp(&t.calls, &first->calls, sizeof t.calls)))
      report_divergence(*first, t);
    t.met = true;
    t.stored = false;
    make_ready(w, i);
  }
  if (checker && first) require_nobody_left(w, *first);
  if (checker) checker->everybody_meets(w.rank);
  w.predicates_result = w.predicates;
  w.predicates_all = w.predicates == w.live;
  w.at_barrier = w.predicates = 0;
}

void release_if_complete(Worker& w) {
  if (w.live && w.at_barrier == w.live) release(w);
}

static void wait(Worker& w, Thread& t, Site site, const char* what) {
  t.site = site;
  t.what = what;
  if (checker) t.calls = checker->calls();
  t.state = State::AtBlockBarrier;
  w.at_barrier++;
  release_if_complete(w);
  park(w, t);
}

void block_barrier(Site site) { wait(*worker, running(), site, "__syncthreads"); }

int block_barrier_reduce(bool predicate, Predicate combine, Site site) {
  static const char* const names[] = {"__syncthreads_count", "__syncthreads_and", "__syncthreads_or"};
  Worker& w = *worker;
  w.predicates += predicate;
  wait(w, running(), site, names[static_cast<int>(combine)]);
  if (combine == Predicate::Count) return static_cast<int>(w.predicates_result);
  return combine == Predicate::And ? w.predicates_all : w.predicates_result > 0;
}

static const char* const named_barrier_names[16] = {
    "named barrier 0",  "named barrier 1",  "named barrier 2",  "named barrier 3",
    "named barrier 4",  "named barrier 5",  "named barrier 6",  "named barrier 7",
    "named barrier 8",  "named barrier 9",  "named barrier 10", "named barrier 11",
    "named barrier 12", "named barrier 13", "named barrier 14", "named barrier 15"};

void named_barrier(unsigned id, unsigned threads, bool arrive_only, Site site) {
  Worker& w = *worker;
  Thread& t = running();
  if (id > 15) fail("named barrier id is over 15", site);
  if (threads % 32 || !threads) fail("named barrier thread count is not a multiple of the warp size", site);
  if (id == 0 && (arrive_only || threads != w.thread_count))
    fail("barrier 0 is that of __syncthreads; some threads of a block use 1 to 15", site);
  if (id == 0) return block_barrier(site);
  NamedBarrier& barrier = w.named[id];
  if (!barrier.arrived) barrier.needed = threads, barrier.first = site;
  if (barrier.needed != threads) {
    const std::string counts = std::to_string(threads) + " threads here and " + std::to_string(barrier.needed);
    fail((named_barrier_names[id] + (" is used with " + counts) + " at " + place(barrier.first)).c_str(), site);
  }
  if (checker) checker->arrive(in_cluster(w, t.linear), barrier.clock);
  if (++barrier.arrived == barrier.needed) {
    for (const uint32_t i : barrier.waiting) {
      make_ready(w, i);
      if (checker) checker->leave(in_cluster(w, i), barrier.clock);
    }
    if (checker && !arrive_only) checker->leave(in_cluster(w, t.linear), barrier.clock);
    barrier.waiting.clear();
    barrier.clock.clear();
    barrier.arrived = 0;
  } else if (!arrive_only) {
    barrier.waiting.push_back(t.linear);
    t.site = site;
    t.what = named_barrier_names[id];
    t.state = State::AtNamedBarrier;
    park(w, t);
  }
}

// barrier.cluster: threads arrive, and later wait until all have.
void release_cluster_if_complete(Worker& lead) {
  ClusterBarrier& barrier = lead.cluster_barrier;
  uint32_t live = 0;
  for (const Worker* w : lead.blocks) live += w->live;
  if (!live || barrier.arrived < live) return;
  barrier.phase++;
  barrier.arrived = 0;
  barrier.seen.swap(barrier.clock);
  barrier.clock.clear();
  for (Worker* w : lead.blocks)
    for (uint32_t i = 0; i < w->thread_count; i++) {
      w->threads[i].arrived_in_cluster = false;
      if (w->threads[i].state == State::AtClusterBarrier) make_ready(*w, i);
    }
}

void cluster_arrive(Site site) {
  Worker& w = *worker;
  Thread& t = running();
  if (t.arrived_in_cluster)
    fail("barrier.cluster.arrive of a thread that has arrived; needs barrier.cluster.wait first", site);
  t.arrived_in_cluster = true;
  t.cluster_phase = w.lead->cluster_barrier.phase;
  t.to_wait_in_cluster = true;
  if (checker) checker->arrive(in_cluster(w, t.linear), w.lead->cluster_barrier.clock);
  w.lead->cluster_barrier.arrived++;
  release_cluster_if_complete(*w.lead);
}

void cluster_wait(Site site) {
  Worker& w = *worker;
  Thread& t = running();
  if (!t.to_wait_in_cluster) fail("barrier.cluster.wait of a thread that has not arrived", site);
  t.to_wait_in_cluster = false;
  if (t.cluster_phase == w.lead->cluster_barrier.phase) {
    t.site = site;
    t.what = "barrier.cluster.wait";
    t.state = State::AtClusterBarrier;
    park(w, t);
  }
  if (checker) checker->leave(in_cluster(w, t.linear), w.lead->cluster_barrier.seen);
}

}  // namespace baracuda_host
