// The OS threads that run a launch: the one that called, and a pool of others.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../check/checker.h"
#include "signals.h"
#include "state.h"

namespace baracuda_host {

// Never destroyed, because parked workers outlive the process's static destructors; replaced in a forked
// child, which inherits the memory and none of the threads.
struct Pool {
  std::mutex launching;  // one launch at a time
  std::mutex lock;
  std::condition_variable job_posted, job_left;
  std::vector<OsThread*> workers;  // the first belongs to whichever thread calls
  uint64_t jobs = 0;
  int wanted = 0, busy = 0;        // workers that may join the job; those, the caller aside, that did
  const Launch* launch = nullptr;  // null once the caller has found no further block
  std::atomic<uint64_t> next_block{0};
};
static Pool* pool = new Pool;
[[maybe_unused]] static const int at_fork = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

// Dynamic shared memory ends, up to 128-byte alignment, at a no-access page.
static void map_dynamic_shared(Worker& w, size_t bytes) {
  const size_t padded = (bytes + 127) / 128 * 128;
  const size_t pages = (padded + page_bytes() - 1) / page_bytes() * page_bytes();
  if (!w.dynamic || w.dynamic_bytes != pages) {
    if (w.dynamic) munmap(w.dynamic, w.dynamic_bytes + page_bytes());
    void* memory = mmap(nullptr, pages + page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    w.dynamic = static_cast<char*>(memory);
    w.dynamic_bytes = pages;
    mprotect(w.dynamic + pages, page_bytes(), PROT_NONE);
  }
  w.view.dynamic_shared = reinterpret_cast<unsigned char*>(w.dynamic + pages - padded);
}

static void prepare_block(Worker& w, const Launch& launch) {
  w.launch = &launch;
  w.view.block = dim3(launch.block_threads);
  w.view.grid = launch.grid;
  w.thread_count = launch.block_threads;
  w.warp_count = (w.thread_count + 31) / 32;
  for (uint32_t i = static_cast<uint32_t>(w.threads.size()); i < w.thread_count; i++) {
    w.threads.emplace_back();
    w.threads.back().linear = i;
    w.threads.back().index = {i, 0, 0};
  }
  map_dynamic_shared(w, launch.kernel->dynamic_shared);
}

static void prepare(OsThread& os, const Launch& launch) {
  const uint32_t blocks = launch.alive * launch.cluster();
  while (os.made.size() < blocks) os.made.push_back(std::make_unique<Worker>());
  os.blocks.clear();
  for (uint32_t i = 0; i < blocks; i++) {
    Worker& w = *os.made[i];
    w.os = &os;
    w.slot = i / launch.cluster();
    w.rank = i % launch.cluster();
    w.lead = os.made[i - w.rank].get();
    if (!w.rank) w.blocks.clear();
    w.lead->blocks.push_back(&w);
    os.blocks.push_back(&w);
    prepare_block(w, launch);
  }
}

static void forget_blocks(OsThread& os) {
  os.stacks.reclaim();
  for (Worker* w : os.blocks) {
    forget_copies(*w);
    for (Thread& t : w->threads) forget_copies(t);
    forget_products(*w);
  }
}

// A copy of the kernel's parameter, aligned as any type may need.
class AlignedArguments {
 public:
  AlignedArguments(const void* arguments, size_t bytes) : memory_(aligned_alloc(128, (bytes + 127) / 128 * 128)) {
    if (!memory_) abort();
    memcpy(memory_, arguments, bytes);
  }
  ~AlignedArguments() { free(memory_); }
  AlignedArguments(const AlignedArguments&) = delete;
  const void* get() const { return memory_; }

 private:
  void* memory_;
};

// In increasing order, so that a block that waits for a lower one is never left waiting.
bool take_cluster(const Launch& launch, uint64_t& first) {
  return !aborting && (first = pool->next_block.fetch_add(launch.cluster())) < launch.blocks();
}

static void run_job(OsThread& os, const Launch& launch) {
  prepare(os, launch);
  if (!sigsetjmp(os.abandoned, 1)) {
    os.in_kernel = true;
    run_blocks(os);
    os.in_kernel = false;
  } else {
    os.in_kernel = false;
    forget_blocks(os);
  }
}

static void* worker_main(void* self) {
  OsThread& os = *static_cast<OsThread*>(self);
  const RunsFibers runs(os);
  std::unique_lock<std::mutex> guard(pool->lock);
  for (;;) {
    pool->job_posted.wait(guard, [&] { return pool->jobs != os.jobs_seen; });
    os.jobs_seen = pool->jobs;
    const Launch* launch = pool->launch;
    if (!launch || os.index >= pool->wanted) continue;
    pool->busy++;
    guard.unlock();
    run_job(os, *launch);
    guard.lock();
    if (--pool->busy == 0) pool->job_left.notify_all();
  }
  return nullptr;
}

// Workers take the signals that faults raise and leave all others to the process's own threads.
static bool start_worker(OsThread* os) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int signal : fault_signals) sigdelset(&blocked, signal);
  sigdelset(&blocked, stop_signal);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const bool started = pthread_create(&os->handle, nullptr, worker_main, os) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) pthread_detach(os->handle);
  return started;
}

static void grow_pool(int workers) {
  while (static_cast<int>(pool->workers.size()) < workers) {
    OsThread* os = new OsThread;
    os->index = static_cast<int>(pool->workers.size());
    os->jobs_seen = pool->jobs;
    if (os->index && !start_worker(os)) return delete os;
    pool->workers.push_back(os);
  }
}

static void report_timeout(double timeout) {
  char text[80];
  snprintf(text, sizeof text, "launch timeout: not finished after %g seconds", timeout);
  report(text);
}

static void wait_for_workers(std::unique_lock<std::mutex>& guard, std::chrono::steady_clock::time_point deadline) {
  const auto idle = [] { return pool->busy == 0; };
  if (!pool->job_left.wait_until(guard, deadline, idle)) aborting = true;
  while (!pool->job_left.wait_for(guard, std::chrono::duration<double>(grace), idle))
    for (int i = 1; i < pool->wanted; i++)
      if (pool->workers[i]->in_kernel) pthread_kill(pool->workers[i]->handle, stop_signal);
}

// The caller runs blocks too, so that a small launch costs no switch between OS threads: workers that wake
// when nothing is left do not join.
std::string run_launch(Launch launch, int workers, double timeout) {
  using Clock = std::chrono::steady_clock;
  const AlignedArguments arguments(launch.arguments, launch.kernel->argument_bytes);
  launch.arguments = arguments.get();
  const std::lock_guard<std::mutex> launching(pool->launching);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
  const SignalHandlers handlers;
  const std::unique_ptr<Checker> checked(launch.memory ? new Checker(*launch.memory, launch) : nullptr);
  checker = checked.get();
  if (checked || launch.alive > 1) workers = 1;  // which switches between the blocks
  std::unique_lock<std::mutex> guard(pool->lock);
  grow_pool(workers);
  aborting = false;
  pool->next_block = 0;
  pool->wanted = workers;
  pool->launch = &launch;
  pool->jobs++;
  guard.unlock();
  if (workers > 1) pool->job_posted.notify_all();
  {
    const RunsFibers runs(*pool->workers[0]);
    const StopTimer timer(timeout);
    run_job(*pool->workers[0], launch);
  }
  guard.lock();
  pool->launch = nullptr;
  wait_for_workers(guard, deadline);
  checker = nullptr;
  if (aborting && Clock::now() >= deadline) report_timeout(timeout);
  return take_findings();
}

}  // namespace baracuda_host
