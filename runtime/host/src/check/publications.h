// What flags, tickets and semaphores order: a fence, an atomic (or volatile) write, an atomic read of the same word by
// another thread, and a fence after it.
#pragma once
#include <memory>
#include <unordered_map>

#include "clocks.h"

namespace baracuda_host {

// `__threadfence` orders blocks, `__threadfence_block` only the threads of one. A write publishes what the fences
// that its thread knows of cover; what a read finds holds from the next fence on, for the fence's thread and for those
// that it meets afterwards.
class Publications {
 public:
  using Clock = Clocks::Clock;
  using Shared = std::shared_ptr<const Clock>;
  struct Word {                                     // what its writers published
    std::unordered_map<uint32_t, Shared> of_block;  // for other blocks, and what they pass on of this one
    uint32_t here_block = 0;
    Shared here;  // for the threads of `here_block`
  };
  struct Words {  // of all blocks of a launch
    bool fenced = false;
    std::unordered_map<const void*, Word> at;
  };

  Publications(Clocks& clocks, Words& words) : clocks_(clocks), words_(words) {}

  void begin_block(uint32_t block) {
    block_ = block;
    fences_.clear();
    found_.clear();
    acquired_.clear();
    covered_ = {};
  }

  void fence(uint32_t thread, bool between_blocks) {
    words_.fenced = true;
    for (const auto& [key, found] : found_) {
      if (!clocks_.knows(thread, found.thread, found.time)) continue;
      if (found.block == block_) clocks_.learn(thread, *found.clock);
      else if (between_blocks) acquire(acquired_[found.block], {found.clock, thread, clocks_.now(thread)});
    }
    Fence fence{thread, clocks_.now(thread), between_blocks, {}};
    clocks_.tell(thread, fence.clock);
    fences_.push_back(std::move(fence));
    if (fences_.size() > most_fences) everybody_meets();
  }

  // After a barrier of the whole block every thread knows of every fence.
  void everybody_meets() {
    for (const Fence& fence : fences_) cover(covered_, fence);
    fences_.clear();
  }

  void atomic(uint32_t thread, const void* address, bool reads, bool writes) {
    if (!words_.fenced) return;
    Word& word = words_.at[address];
    if (reads) {
      for (const auto& [block, clock] : word.of_block) find({clock, block, thread, clocks_.now(thread)});
      if (word.here_block == block_) find({word.here, block_, thread, clocks_.now(thread)});
    }
    if (writes) publish(thread, word, reads);
  }

  bool knows(uint32_t thread, uint32_t block, uint32_t other, uint32_t time) const {
    const auto found = acquired_.find(block);
    if (found == acquired_.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](const Acquired& a) {
      return time <= (*a.clock)[other] && clocks_.knows(thread, a.thread, a.time);
    });
  }

 private:
  static constexpr size_t most_fences = 4096;  // beyond that, all count as known to all
  struct Covered {
    Clock block, device;  // by fences of either kind, by those between blocks
  };
  struct Fence {
    uint32_t thread, time;
    bool between_blocks;
    Clock clock;
  };
  struct Found {  // a read has seen it, a fence has yet to follow
    Shared clock;
    uint32_t block, thread, time;
  };
  struct Acquired {
    Shared clock;
    uint32_t thread, time;
  };

  static void raise(Clock& to, const Clock& from) {
    to.resize(std::max(to.size(), from.size()));
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
  }
  static void add(Shared& to, const Shared& from) {
    if (!to) to = from;
    if (to == from) return;
    Clock both = *to;
    raise(both, *from);
    if (both != *to) to = std::make_shared<const Clock>(std::move(both));
  }
  static void cover(Covered& covered, const Fence& fence) {
    raise(covered.block, fence.clock);
    if (fence.between_blocks) raise(covered.device, fence.clock);
  }

  static void acquire(std::vector<Acquired>& of_block, Acquired a) {
    const auto same = [&](const Acquired& b) { return a.clock == b.clock && a.thread == b.thread; };
    if (std::none_of(of_block.begin(), of_block.end(), same)) of_block.push_back(std::move(a));
  }

  // What a thread finds in several words before its next fence, it knows from there on.
  void find(Found found) {
    const uint64_t key = static_cast<uint64_t>(found.block) << 32 | found.thread;
    const auto [before, first] = found_.try_emplace(key, found);
    if (first) return;
    add(before->second.clock, found.clock);
    before->second.time = found.time;
  }

  // What the thread has learned from other blocks goes on with what it publishes. An atomic that also reads adds to
  // what its word holds.
  void publish(uint32_t thread, Word& word, bool adds) {
    const auto put = [&](uint32_t block, const Shared& clock) {
      if (!adds) word.of_block[block] = nullptr;
      add(word.of_block[block], clock);
    };
    Covered covered = covered_;
    for (const Fence& fence : fences_)
      if (clocks_.knows(thread, fence.thread, fence.time)) cover(covered, fence);
    for (const auto& [block, learned] : acquired_) {
      Shared known;
      for (const Acquired& a : learned)
        if (clocks_.knows(thread, a.thread, a.time)) add(known, a.clock);
      if (known) put(block, known);
    }
    if (!covered.device.empty()) put(block_, std::make_shared<const Clock>(std::move(covered.device)));
    if (covered.block.empty()) return;
    if (word.here_block != block_ || !adds) word.here = nullptr;
    word.here_block = block_;
    add(word.here, std::make_shared<const Clock>(std::move(covered.block)));
  }

  Clocks& clocks_;
  Words& words_;
  uint32_t block_ = 0;
  std::vector<Fence> fences_;                  // since the last barrier of the whole block
  Covered covered_;                            // by those before
  std::unordered_map<uint64_t, Found> found_;  // by block and thread
  std::unordered_map<uint32_t, std::vector<Acquired>> acquired_;
};

}  // namespace baracuda_host
