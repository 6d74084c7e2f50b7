// Warp-level operations: shuffles, votes, matches, reductions.
#include "../check/checker.h"
#include "state.h"

namespace baracuda_host {

template <class Visit>
static void each_lane(uint32_t lanes, Visit visit) {
  for (; lanes; lanes &= lanes - 1) visit(static_cast<uint32_t>(__builtin_ctz(lanes)));
}

static void report_inactive(uint32_t lane, int source) {
  const Thread& reader = worker->threads[running().linear / 32 * 32 + lane];
  report(whoami() + ": lane " + std::to_string(lane) + " reads inactive lane " + std::to_string(source) + " in " +
         reader.what + " at " + place(reader.site));
}

static void exchange(void** arguments, uint32_t lanes) {
  each_lane(lanes, [&](uint32_t lane) {
    auto& own = *static_cast<Shuffle*>(arguments[lane]);
    if (!(lanes >> own.source & 1)) {
      report_inactive(lane, own.source);
      abandon();
    }
    own.result = static_cast<Shuffle*>(arguments[own.source])->value;
  });
}

static void no_exchange(void**, uint32_t) {}

// Folds all votes; `fold(total, lane, value)`.
template <class Fold>
static void tally(void** arguments, uint32_t lanes, uint32_t total, Fold fold) {
  each_lane(lanes, [&](uint32_t lane) {
    total = fold(total, lane, static_cast<uint32_t>(static_cast<Vote*>(arguments[lane])->value));
  });
  each_lane(lanes, [&](uint32_t lane) { static_cast<Vote*>(arguments[lane])->result = total; });
}

#define BARACUDA_HOST_VOTE(variable, name, initial, expression)                                    \
  const Operation variable{name, [](void** arguments, uint32_t lanes) {                            \
                             tally(arguments, lanes, initial,                                      \
                                   [](uint32_t total, uint32_t lane, uint32_t value) -> uint32_t { \
                                     (void)lane;                                                   \
                                     return expression;                                            \
                                   });                                                             \
                           }};
BARACUDA_HOST_VOTE(vote_ballot, "__ballot_sync", 0, total | value << lane)
BARACUDA_HOST_VOTE(vote_any, "__any_sync", 0, total | value)
BARACUDA_HOST_VOTE(vote_all, "__all_sync", 1, total& value)
BARACUDA_HOST_VOTE(reduce_add, "__reduce_add_sync", 0, total + value)
BARACUDA_HOST_VOTE(reduce_min, "__reduce_min_sync", ~0u, value < total ? value : total)
BARACUDA_HOST_VOTE(reduce_max, "__reduce_max_sync", 0, value > total ? value : total)
BARACUDA_HOST_VOTE(reduce_min_signed, "__reduce_min_sync", INT32_MAX, int32_t(value) < int32_t(total) ? value : total)
BARACUDA_HOST_VOTE(reduce_max_signed, "__reduce_max_sync", 1u << 31, int32_t(value) > int32_t(total) ? value : total)
BARACUDA_HOST_VOTE(reduce_and, "__reduce_and_sync", ~0u, total& value)
BARACUDA_HOST_VOTE(reduce_or, "__reduce_or_sync", 0, total | value)
BARACUDA_HOST_VOTE(reduce_xor, "__reduce_xor_sync", 0, total ^ value)
#undef BARACUDA_HOST_VOTE

const Operation match_any{"__match_any_sync", [](void** arguments, uint32_t lanes) {
                            each_lane(lanes, [&](uint32_t lane) {
                              auto& own = *static_cast<Vote*>(arguments[lane]);
                              own.result = 0;
                              each_lane(lanes, [&](uint32_t other) {
                                if (static_cast<Vote*>(arguments[other])->value == own.value) own.result |= 1u << other;
                              });
                            });
                          }};
const Operation syncwarp{"__syncwarp", no_exchange}, shfl{"__shfl_sync", exchange},
    shfl_xor{"__shfl_xor_sync", exchange}, shfl_up{"__shfl_up_sync", exchange}, shfl_down{"__shfl_down_sync", exchange};

static std::string describe(const Thread& t) {
  char mask[16];
  snprintf(mask, sizeof mask, "%08x", t.mask);
  return "lane " + std::to_string(t.linear % 32) + " is in " + t.what + " with mask " + mask + " at " + place(t.site);
}

static void report_divergence_of(const Thread& a, const Thread& b) {
  report(block_name() + ": warp " + std::to_string(a.linear / 32) + " diverges, " + describe(a) + ", " + describe(b));
}

// In check mode: lanes of the mask may have returned early, but not after work of their own.
static void require_nobody_left(const Worker& w, uint32_t warp, const Thread& t) {
  each_lane(t.mask & ~w.live_lanes[warp], [&](uint32_t lane) {
    if (warp * 32 + lane >= w.thread_count || !w.threads[warp * 32 + lane].stored) return;
    report(block_name() + ": warp " + std::to_string(warp) + " diverges, lane " + std::to_string(lane) +
           " has exited, " + describe(t));
    abandon();
  });
}

// Combines and releases the group that `lane` waits in, if all of it that has not exited has arrived.
static void release_if_met(Worker& w, uint32_t warp, uint32_t lane) {
  Thread* lanes = &w.threads[warp * 32];
  const Thread& t = lanes[lane];
  const uint32_t group = t.mask & w.live_lanes[warp];
  if ((w.waiting_lanes[warp] & group) != group) return;
  void* arguments[32];
  each_lane(group, [&](uint32_t other) {
    const Thread& o = lanes[other];
    if (o.mask != t.mask || o.operation != t.operation || (t.operation->aligned && !same(o.site, t.site))) {
      report_divergence_of(t, lanes[other]);
      abandon();
    }
    arguments[other] = lanes[other].argument;
  });
  if (checker && t.operation == &syncwarp) {
    require_nobody_left(w, warp, t);
    checker->lanes_meet(warp * 32, group);
  }
  t.operation->combine(arguments, group);
  w.waiting_lanes[warp] &= ~group;
  each_lane(group, [&](uint32_t other) {
    lanes[other].state = State::Ready;
    lanes[other].stored = false;
  });
  w.ready.add_lanes(warp, group);
}

void release_warp_groups(Worker& w, uint32_t warp) {
  each_lane(w.waiting_lanes[warp], [&](uint32_t lane) {
    if (w.waiting_lanes[warp] >> lane & 1) release_if_met(w, warp, lane);  // not released with an earlier lane
  });
}

void collective(const Operation& operation, unsigned mask, void* argument, Site site) {
  Worker& w = *worker;
  Thread& t = running();
  const uint32_t warp = t.linear / 32, lane = t.linear % 32;
  t.operation = &operation;
  t.mask = mask;
  t.argument = argument;
  t.what = operation.name;
  t.site = site;
  if (!(mask >> lane & 1)) {
    report(whoami() + ": calling lane is not in its mask: " + describe(t));
    abandon();
  }
  t.state = State::AtWarp;
  w.waiting_lanes[warp] |= 1u << lane;
  release_if_met(w, warp, lane);
  park(w, t);
}

}  // namespace baracuda_host
