// Which accesses of a block's threads are ordered before which: vector clocks.
#pragma once
#include <algorithm>
#include <stdint.h>
#include <vector>

namespace baracuda_host {

// A thread's time advances when it lets others know what it did; what it did up to time T is known to a thread
// that has met it, directly or through others, since T passed. A barrier of the whole block raises `floor_`, what
// everybody knows of everybody; `seen_` is what single threads know beyond, and is mostly empty.
class Clocks {
 public:
  using Clock = std::vector<uint32_t>;  // of what was done by each thread, the last time that is known

  void reset(uint32_t threads) {
    time_.assign(threads, 1);
    floor_.assign(threads, 0);
    knows_more_.assign(threads, 0);
    if (seen_.size() < threads) seen_.resize(threads);
  }
  uint32_t now(uint32_t thread) const { return time_[thread]; }
  bool knows(uint32_t thread, uint32_t other, uint32_t time) const {
    return thread == other || time <= floor_[other] || (knows_more_[thread] && time <= seen_[thread][other]);
  }
  // Adds all that `thread` knows and did to `clock`; what it does from here on is not in it.
  void tell(uint32_t thread, Clock& clock) {
    clock.resize(time_.size());
    raise(clock, knows_more_[thread] ? seen_[thread] : floor_);
    clock[thread] = std::max(clock[thread], time_[thread]);
    time_[thread]++;
  }
  void learn(uint32_t thread, const Clock& clock) {
    if (!knows_more_[thread]) seen_[thread] = floor_;
    knows_more_[thread] = 1;
    raise(seen_[thread], clock);
  }
  // Ends a stretch of time of `thread`, which is returned.
  uint32_t pass(uint32_t thread) { return time_[thread]++; }
  void learn(uint32_t thread, uint32_t other, uint32_t time) {
    if (thread == other) return;
    if (!knows_more_[thread]) seen_[thread] = floor_;
    knows_more_[thread] = 1;
    seen_[thread][other] = std::max(seen_[thread][other], time);
  }
  static void raise(Clock& to, const Clock& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
  }
  void everybody_meets() {
    floor_ = time_;
    for (uint32_t& time : time_) time++;
    std::fill(knows_more_.begin(), knows_more_.end(), 0);
  }

 private:
  Clock time_, floor_;
  std::vector<uint8_t> knows_more_;
  std::vector<Clock> seen_;
};

}  // namespace baracuda_host
