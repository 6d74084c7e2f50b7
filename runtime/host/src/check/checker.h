// Check mode: every access of a kernel to memory is looked at before it happens.
#pragma once
#include <memory>
#include <unordered_set>

#include "clocks.h"
#include "proxies.h"
#include "publications.h"
#include "shared_objects.h"
#include "../threads/state.h"
#include "watched_memory.h"

namespace baracuda_host {

// Of one launch, whose blocks or clusters take turns on one OS thread. A cluster counts as one block.
class Checker {
 public:
  Checker(WatchedMemory& memory, const Launch& launch);
  ~Checker();

  void begin_blocks(const Worker& lead, uint64_t number);
  void switch_to(const Worker& w);  // another block runs
  void access(const char* address, size_t bytes, Access kind);
  void need(Space space, const char* address, const char* instruction);
  void fence(bool between_blocks);

  // Synchronisation of threads, which are counted through the blocks of a cluster, or of those of a block.
  void everybody_meets(uint32_t rank) {
    if (now_->shared.size() == 1) now_->publications.everybody_meets();
    now_->clocks.everybody_meets(rank);
  }
  void fence_proxy();
  void wait_for_grid();
  void lanes_meet(uint32_t first, uint32_t lanes);
  void arrive(uint32_t thread, Clocks::Clock& barrier) { now_->clocks.tell(thread, barrier); }
  void leave(uint32_t thread, const Clocks::Clock& barrier) { now_->clocks.learn(thread, barrier); }

  // cp.async: the destination is being written from the issue to the wait that covers it.
  void copy_begins(const char* shared, size_t bytes);
  void copy_ends(const char* shared, size_t bytes);

  // cp.async.bulk: who waits at its barrier knows `clock`, what its thread knew.
  void bulk_copy_begins(uint32_t rank, char* shared, size_t bytes, Clocks::Clock& clock);
  void bulk_copy_ends(uint32_t rank, const char* shared, size_t bytes);
  bool by_engine(const char* shared);  // whether the copy engine was the last to write there
  void pass_on(Clocks::Clock& barrier, const Clocks::Clock& clock) { Clocks::raise(barrier, clock); }
  // The lanes of a warp from `first` on have waited for what the matrix unit read as the running thread.
  void warp_knows(uint32_t first);

  void say(const std::string& what);  // of the running thread, where it is; once for each place
  Calls calls() const;
  std::string at(const Calls& calls) const;  // " at pc 0x... <- pc 0x..."; Python makes lines of it
  std::string nearest(const char* address) const;

 private:
  struct Actor {  // who accesses, and when
    uint32_t thread, time;
  };
  struct Cluster {  // one that is alive
    explicit Cluster(Publications::Words& words) : publications(clocks, words) {}
    uint32_t number = 0;
    std::vector<std::vector<Region>> shared;  // of each of its blocks; the next cluster here has the same
    Clocks clocks;
    Publications publications;
    Proxies proxies{clocks};
    std::vector<std::pair<uint32_t, uint32_t>> grid_waits;  // by whom and when
  };
  void look_at_rank(uint32_t rank) { rank_ = rank, last_ = nullptr; }
  Region* find(const char* address);
  bool is_parameter(const char* address) const;
  bool is_local(const char* address, Access kind);
  [[noreturn]] void out_of_bounds(const char* address, size_t bytes, Access kind);
  void enter(Region& region, size_t cell, bool whole, Access kind);
  void enter_constant(const Region& region, Cell& cell, const char* at);
  bool lockstep(const Region& region, const Cell& cell, const Actor& actor) const;
  bool waited_for_grid(const Actor& actor) const;
  bool after_write(const Region& region, const Cell& cell, const Actor& actor, Access kind) const;
  bool ordered(bool shared, uint32_t block, uint32_t thread, uint32_t time, const Actor& actor) const;
  void race(const char* what, const Region& region, const Cell& cell, const char* at, uint32_t block, uint32_t thread);
  std::string name_of(const Region& region, const Cell& cell, const char* at) const;

  WatchedMemory& memory_;
  const Kernel& kernel_;
  const std::vector<SharedObject> objects_;
  Publications::Words words_;
  std::vector<std::unique_ptr<Cluster>> clusters_;  // by slot
  Cluster* now_ = nullptr;
  uint32_t rank_ = 0;
  const bool overlaps_;
  uint32_t first_block_;   // number of the launch's first block
  uint32_t first_before_;  // of the launch before
  Region* last_ = nullptr;
  std::unordered_set<std::string> said_;
};

extern Checker* checker;  // null unless a checked launch is running

}  // namespace baracuda_host
