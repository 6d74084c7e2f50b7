// Which accesses of one block are ordered before those of another: by a fence, then an atomic that both perform.
#pragma once
#include <memory>
#include <unordered_map>

#include "clocks.h"

namespace baracuda_host {

class Publications {
 public:
  void begin_launch() { of_word_.clear(), fenced_ = false; }
  void begin_block(uint32_t block) {
    block_ = block;
    covered_.clear();
    mine_.reset();
    known_.clear();
    last_word_ = 0;
  }
  // A fence covers all that its thread knows of.
  void fence(const Clocks::Clock& known) {
    covered_.resize(known.size());
    for (size_t i = 0; i < known.size(); i++) covered_[i] = std::max(covered_[i], known[i]);
    mine_.reset();
    fenced_ = true;
  }
  // An atomic learns what others published by atomics on the same word, and adds what this block has covered.
  void atomic(const void* address, bool writes) {
    if (!fenced_) return;
    Word& word = of_word_[address];
    if (address != last_word_ || word.version != last_version_)
      for (const auto& [block, clock] : word.published) known_[block] = clock;
    if (writes) publish(word);
    last_word_ = address;
    last_version_ = word.version;
  }
  bool knows(uint32_t block, uint32_t thread, uint32_t time) const {
    const auto found = known_.find(block);
    return found != known_.end() && time <= (*found->second)[thread];
  }

 private:
  using Shared = std::shared_ptr<const Clocks::Clock>;
  struct Word {
    std::unordered_map<uint32_t, Shared> published;  // by block
    uint32_t version = 0;
  };

  void publish(Word& word) {
    if (!covered_.empty() && !mine_) mine_ = std::make_shared<const Clocks::Clock>(covered_);
    bool more = false;
    const auto add = [&](uint32_t block, const Shared& clock) {
      Shared& there = word.published[block];
      if (there != clock) there = clock, more = true;
    };
    for (const auto& [block, clock] : known_) add(block, clock);
    if (mine_) add(block_, mine_);
    if (more) word.version++;
  }

  uint32_t block_ = 0, last_version_ = 0;
  const void* last_word_ = nullptr;
  bool fenced_ = false;
  Clocks::Clock covered_;  // what fences of this block cover
  Shared mine_;            // the same, as it was published
  std::unordered_map<uint32_t, Shared> known_;
  std::unordered_map<const void*, Word> of_word_;
};

}  // namespace baracuda_host
