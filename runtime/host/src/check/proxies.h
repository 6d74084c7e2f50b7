// Which stores the copy engine and the matrix units see: those before a fence.proxy.async that is itself before them.
#pragma once
#include "clocks.h"

namespace baracuda_host {

class Proxies {
 public:
  explicit Proxies(Clocks& clocks) : clocks_(clocks) {}

  void reset(uint32_t threads) {
    fences_.assign(threads, {});
    covered_.assign(threads, {});
  }
  void fence(uint32_t thread) {
    covered_[thread] = clocks_.known_to(thread);
    fences_[thread].push_back(clocks_.pass(thread));
  }
  // Whether what `writer` stored at `time` is seen by what `thread` starts: the writer's fence, or one of its own.
  bool sees(uint32_t thread, uint32_t writer, uint32_t time) const {
    if (!covered_[thread].empty() && time <= covered_[thread][writer]) return true;
    const std::vector<uint32_t>& times = fences_[writer];
    const auto fence = std::lower_bound(times.begin(), times.end(), time);
    return fence != times.end() && clocks_.knows(thread, writer, *fence);
  }

 private:
  Clocks& clocks_;
  std::vector<std::vector<uint32_t>> fences_;  // of each thread, when
  std::vector<Clocks::Clock> covered_;         // of each thread, what its last fence covers of others
};

}  // namespace baracuda_host
