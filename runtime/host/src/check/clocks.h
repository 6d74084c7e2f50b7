// Which accesses of a block's threads are ordered before which: vector clocks.
#pragma once
#include <algorithm>
#include <stdint.h>
#include <vector>

namespace baracuda_host {

// A thread's time advances when it lets others know what it did; what it did up to time T is known to a thread
// that has met it, directly or through others, since T passed. A barrier of a whole block raises its `floor_`, what
// each of its threads knows of everybody; `seen_` is what single threads know beyond, and is mostly empty.
class Clocks {
 public:
  using Clock = std::vector<uint32_t>;  // of what was done by each thread, the last time that is known

  void reset(uint32_t block_threads, uint32_t blocks) {
    block_threads_ = block_threads;
    const uint32_t threads = block_threads * blocks;
    time_.assign(threads, 1);
    floor_.assign(blocks, Clock(threads, 0));
    knows_more_.assign(threads, 0);
    if (seen_.size() < threads) seen_.resize(threads);
  }
  uint32_t now(uint32_t thread) const { return time_[thread]; }
  bool knows(uint32_t thread, uint32_t other, uint32_t time) const {
    return thread == other || time <= floor_of(thread)[other] || (knows_more_[thread] && time <= seen_[thread][other]);
  }
  // Adds all that `thread` knows and did to `clock`; what it does from here on is not in it.
  void tell(uint32_t thread, Clock& clock) {
    clock.resize(time_.size());
    raise(clock, knows_more_[thread] ? seen_[thread] : floor_of(thread));
    clock[thread] = std::max(clock[thread], time_[thread]);
    time_[thread]++;
  }
  void learn(uint32_t thread, const Clock& clock) {
    if (!knows_more_[thread]) seen_[thread] = floor_of(thread);
    knows_more_[thread] = 1;
    raise(seen_[thread], clock);
  }
  Clock known_to(uint32_t thread) {
    Clock clock = knows_more_[thread] ? seen_[thread] : floor_of(thread);
    clock[thread] = time_[thread];
    return clock;
  }
  // Ends a stretch of time of `thread`, which is returned.
  uint32_t pass(uint32_t thread) { return time_[thread]++; }
  void learn(uint32_t thread, uint32_t other, uint32_t time) {
    if (thread == other) return;
    if (!knows_more_[thread]) seen_[thread] = floor_of(thread);
    knows_more_[thread] = 1;
    seen_[thread][other] = std::max(seen_[thread][other], time);
  }
  static void raise(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
  }
  void everybody_meets(uint32_t block) {
    Clock& floor = floor_[block];
    const uint32_t first = block * block_threads_, end = first + block_threads_;
    if (floor_.size() > 1)
      for (uint32_t thread = first; thread < end; thread++)
        if (knows_more_[thread]) raise(floor, seen_[thread]);
    for (uint32_t thread = first; thread < end; thread++) {
      floor[thread] = time_[thread]++;
      knows_more_[thread] = 0;
    }
  }

 private:
  const Clock& floor_of(uint32_t thread) const { return floor_[thread / block_threads_]; }

  uint32_t block_threads_ = 1;
  Clock time_;
  std::vector<Clock> floor_;  // of each block
  std::vector<uint8_t> knows_more_;
  std::vector<Clock> seen_;
};

}  // namespace baracuda_host
