// What the runtime keeps for each CUDA thread, each worker and each launch.
#pragma once
#include <atomic>
#include <memory>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../include/baracuda_host/interface.h"
#include "fiber.h"

namespace baracuda_host {

enum class State : uint8_t {
  Fresh,
  Running,
  Ready,
  AtBlockBarrier,
  AtNamedBarrier,
  AtClusterBarrier,
  AtMbarrier,
  AtRegisters,
  AtWarp,
  Done
};
enum class Order : uint32_t { Forward, Reverse, Random };
enum class Asynchrony : uint32_t { Late, Early, Random };  // when the copy engine and the matrix units do their work

struct AsyncCopies;  // of one thread, not yet waited for
struct CopyEngine;   // of a cluster
struct WarpProducts;

struct Mbarrier;

// The kernel's functions that are running, innermost first, as return addresses.
struct Calls {
  const char* pc[8] = {};
};

struct Thread : ThreadView {
  State state = State::Fresh;
  uint32_t mask = 0;  // while AtWarp: the lanes this one meets
  const Operation* operation = nullptr;
  void* argument = nullptr;
  Fiber* fiber = nullptr;
  AsyncCopies* copies = nullptr;  // allocated on first use, kept for the worker's life
  const char* what = "";          // what it waits in, and where
  Site site{};
  Calls calls;                       // in check mode, at a barrier of the block
  bool met = false, stored = false;  // the block at a barrier; in check mode, memory since it last met others
  const Mbarrier* awaited = nullptr;
  uint32_t bulk_group = 0;          // cp.async.bulk.commit_group: how many
  std::vector<bool> written_words;  // in check mode: of its stack, since the last wgmma.fence
  bool arrived_in_cluster = false, to_wait_in_cluster = false;
  uint64_t cluster_phase = 0;  // in which it arrived
};

struct NamedBarrier {
  uint32_t arrived = 0, needed = 0;
  std::vector<uint32_t> waiting;
  Site first{};                 // where the first of them arrived
  std::vector<uint32_t> clock;  // what those who arrived did, in check mode
};

// A barrier in shared memory.
struct Mbarrier {
  struct Worker* owner = nullptr;
  uint32_t address = 0, arrivals = 0, missing = 0, made_by = 0;
  int64_t bytes = 0, expected = 0;                 // of the current phase: not yet come, and all
  std::vector<uint32_t> arrived, in_phase_before;  // threads of the own block
  uint64_t phase = 0;
  bool published = false;                   // whether the copy engine sees it
  std::vector<uint32_t> waiting, resuming;  // who waits for the phase, and who has yet to see that it ended
  std::vector<uint32_t> clock, seen;        // in check mode: of the arrivals in this phase and in the last
};

// A set of threads of the block, by warp.
struct ThreadSet {
  uint32_t warps = 0, lanes[32] = {};
  void add(uint32_t thread) { add_lanes(thread / 32, 1u << thread % 32); }
  void add_lanes(uint32_t warp, uint32_t mask) { lanes[warp] |= mask, warps |= 1u << warp; }
  void remove(uint32_t warp, uint32_t lane) {
    if (!(lanes[warp] &= ~(1u << lane))) warps &= ~(1u << warp);
  }
};

struct Launch {
  const Kernel* kernel;
  const void* arguments;
  dim3 grid;
  uint32_t block_threads;
  Order order;
  uint32_t seed;
  Asynchrony asynchrony;
  uint32_t alive;               // clusters that an OS thread runs at once
  bool overlaps;                // may start before the launch before has ended
  class WatchedMemory* memory;  // null unless the launch is checked
  uint32_t cluster() const { return kernel->cluster; }
  uint64_t blocks() const { return static_cast<uint64_t>(grid.x) * grid.y * grid.z; }
};

// A barrier of all threads of a cluster.
struct ClusterBarrier {
  uint32_t arrived = 0;
  uint64_t phase = 0;
  std::vector<uint32_t> clock, seen;  // in check mode: of the arrivals in this phase and in the last
};

// A block that is alive, or where the next one will run. The blocks of a cluster run on one OS thread, and that of rank
// 0 leads them. What a block has in static shared memory is the OS thread's own; of blocks that do not run it lies in
// `away`.
struct Worker {
  struct OsThread* os = nullptr;
  Worker* lead = this;
  uint32_t rank = 0, slot = 0;  // in the cluster; of the cluster on the OS thread
  std::vector<Worker*> blocks;  // of the leader: of each rank
  std::vector<char> away;
  ClusterBarrier cluster_barrier;  // of the leader
  BlockView view{};
  const Launch* launch = nullptr;
  std::vector<Thread> threads;  // at least thread_count of them
  uint32_t thread_count = 0, warp_count = 0, live = 0, current_warp = 0, random = 1;
  ThreadSet ready, yielded;  // a thread that yields waits until `ready` is empty
  uint32_t live_lanes[32], waiting_lanes[32];
  uint32_t at_barrier = 0, predicates = 0, predicates_result = 0;
  bool predicates_all = false;
  NamedBarrier named[16];
  std::unordered_map<uint32_t, Mbarrier> mbarriers;  // by their place in the window
  std::unordered_map<uint32_t, Site> invalidated;    // mbarriers that were, and where
  CopyEngine* engine = nullptr;                      // of the leader; allocated on first use, as are products
  std::vector<WarpProducts*> products;               // of each warp
  std::vector<uint32_t> registers;                   // of a thread of each warp; 0: as launched
  uint32_t free_registers = 0;
  char* dynamic = nullptr;  // mapping that holds dynamic shared memory, then a no-access page
  size_t dynamic_bytes = 0;
};

// One OS thread and the blocks that are alive on it.
struct OsThread {
  std::vector<std::unique_ptr<Worker>> made;  // all that there ever were
  std::vector<Worker*> blocks;                // cluster by cluster
  bool takes_turns = false;                   // whether blocks do, at random, rather than go on while they can
  uint32_t random = 1, stretch = 0;           // how often the running block may still go on
  FiberStacks stacks;
  Fiber home{};  // the OS thread's own stack
  sigjmp_buf abandoned;
  volatile bool in_kernel = false;
  void* signal_stack = nullptr;
  pthread_t handle{};
  int index = 0;
  uint64_t jobs_seen = 0;
};

extern __thread Worker* worker BARACUDA_HOST_FAST_TLS;
inline Thread& running() { return *static_cast<Thread*>(thread); }

// scheduler.cpp
void run_blocks(OsThread& os);  // until none is left
inline uint32_t in_cluster(const Worker& w, uint32_t thread) { return w.rank * w.thread_count + thread; }
void park(Worker& w, Thread& self);  // gives up the OS thread until somebody makes `self` ready
void make_ready(Worker& w, uint32_t index);

// barrier.cpp and warp.cpp: an exiting thread may complete what others wait for
void release_if_complete(Worker& w);
void release_cluster_if_complete(Worker& lead);
void release_warp_groups(Worker& w, uint32_t warp);

uint32_t next_random(Worker& w);
bool happens_now(Worker& w);  // whether something asynchronous is done when it is issued

// copy_engine.cpp, wgmma.cpp and registers.cpp
bool finish_awaited_copy(Worker& w);
void require_sources_read(const Thread& t);
void drain_copies(Worker& w, bool last);
void forget_copies(Worker& w);
void look_at_registers(const char* address, size_t bytes, bool writes);  // check mode: an access to local memory
void require_products_awaited(uint32_t warp);
void forget_products(Worker& w);
void reset_registers(Worker& w);
std::string registers_lacking(const Worker& w, const Thread& t);

// async_copy.cpp
void require_copies_awaited(Thread& t);
void forget_copies(Thread& t);

// fault.cpp
std::string place(Site site);  // "file.cu:12"
std::string whoami();          // "block (1,0,0) thread (33,0,0)"
std::string block_name();
[[noreturn]] void fail(const std::string& what, Site site);
void report(std::string finding);
std::string take_findings();  // all of them, one per line
[[noreturn]] void abandon();  // leaves the block for good; nothing on this stack is destroyed
[[noreturn]] void report_and_abandon(const char* what);
void handle_fault(int signal, siginfo_t* info, void* context);
extern std::atomic<bool> aborting;  // a worker abandoned its block, so the launch is lost

// pool.cpp
bool take_cluster(const Launch& launch, uint64_t& first);  // the next one's first block; false if none is left
std::string run_launch(Launch launch, int workers, double timeout);  // returns its findings

}  // namespace baracuda_host
