// What the runtime keeps for each CUDA thread, each worker and each launch.
#pragma once
#include <atomic>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string>
#include <vector>

#include "../include/baracuda_host/interface.h"
#include "fiber.h"

namespace baracuda_host {

enum class State : uint8_t { Fresh, Running, Ready, AtBlockBarrier, AtNamedBarrier, AtWarp, Done };
enum class Order : uint32_t { Forward, Reverse, Random };

struct AsyncCopies;  // of one thread, not yet waited for

struct Thread : ThreadView {
  State state = State::Fresh;
  uint32_t mask = 0;  // while AtWarp: the lanes this one meets
  const Operation* operation = nullptr;
  void* argument = nullptr;
  Fiber* fiber = nullptr;
  AsyncCopies* copies = nullptr;  // allocated on first use, kept for the worker's life
  const char* what = "";          // what it waits in, and where
  Site site{};
};

struct NamedBarrier {
  uint32_t arrived = 0, needed = 0;
  std::vector<uint32_t> waiting;
  Site first{};                 // where the first of them arrived
  std::vector<uint32_t> clock;  // what those who arrived did, in check mode
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
  class WatchedMemory* memory;  // null unless the launch is checked
  uint64_t blocks() const { return static_cast<uint64_t>(grid.x) * grid.y * grid.z; }
};

// One OS thread and the block that it runs.
struct Worker {
  BlockView view{};
  const Launch* launch = nullptr;
  std::vector<Thread> threads;  // at least thread_count of them
  uint32_t thread_count = 0, warp_count = 0, live = 0, current_warp = 0, random = 1;
  ThreadSet ready, yielded;  // a thread that yields waits until `ready` is empty
  uint32_t live_lanes[32], waiting_lanes[32];
  uint32_t at_barrier = 0, predicates = 0, predicates_result = 0;
  bool predicates_all = false;
  NamedBarrier named[16];
  FiberStacks stacks;
  Fiber home{};             // the OS thread's own stack
  char* dynamic = nullptr;  // mapping that holds dynamic shared memory, then a no-access page
  size_t dynamic_bytes = 0;
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
void run_block(Worker& w, uint64_t number);
void park(Worker& w, Thread& self);  // gives up the OS thread until somebody makes `self` ready
void make_ready(Worker& w, uint32_t index);

// barrier.cpp and warp.cpp: an exiting thread may complete what others wait for
void release_if_complete(Worker& w);
void release_warp_groups(Worker& w, uint32_t warp);

// async_copy.cpp
void require_copies_awaited(Thread& t);
void forget_copies(Thread& t);

// fault.cpp
std::string place(Site site);  // "file.cu:12"
std::string whoami();          // "block (1,0,0) thread (33,0,0)"
std::string block_name();
void report(std::string finding);
std::string take_findings();  // all of them, one per line
[[noreturn]] void abandon();  // leaves the block for good; nothing on this stack is destroyed
[[noreturn]] void report_and_abandon(const char* what);
void handle_fault(int signal, siginfo_t* info, void* context);
extern std::atomic<bool> aborting;  // a worker abandoned its block, so the launch is lost

// pool.cpp
std::string run_launch(const Launch& launch, int workers, double timeout);  // returns its findings

}  // namespace baracuda_host
