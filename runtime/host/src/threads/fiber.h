// Fibers: stacks between which one OS thread switches.
#pragma once
#include <stddef.h>
#include <vector>

#if !defined(BARACUDA_HOST_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define BARACUDA_HOST_UCONTEXT 1
#endif
#ifdef BARACUDA_HOST_UCONTEXT
#include <ucontext.h>
#endif

namespace baracuda_host {

struct Fiber {
#ifdef BARACUDA_HOST_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer;
#endif
  char* low;  // lowest usable address of the stack, which ends here; null for an OS thread's own stack
  bool holds(const void* address) const { return address >= low && address < static_cast<const void*>(this); }
};

// The next switch to `fiber` calls `entry`, which must not return.
void fiber_prepare(Fiber& fiber, void (*entry)());
void fiber_switch(Fiber& from, Fiber& to);

// The stacks of one OS thread. Each lies above a no-access page.
class FiberStacks {
 public:
  static constexpr size_t bytes = 64 << 10;
  Fiber* take();  // null when memory is exhausted
  void give(Fiber* fiber) { free_.push_back(fiber); }
  void reclaim() { free_ = all_; }         // every fiber of an abandoned block is gone
  bool guards(const char* address) const;  // is this in the no-access page of a stack?

 private:
  bool grow();
  std::vector<Fiber*> free_, all_;
};

size_t page_bytes();

}  // namespace baracuda_host
