// Context switches and fiber stacks.
#include "fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// baracuda_host_switch(void** save, void* load): push the callee-saved registers, swap stack pointers, pop.
// ucontext does the same with a system call per switch and is 15 to 25 times slower.
#if defined(BARACUDA_HOST_UCONTEXT)
#elif defined(__x86_64__)
__asm__(R"(
.text
.hidden baracuda_host_switch
.globl baracuda_host_switch
.type baracuda_host_switch,@function
baracuda_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size baracuda_host_switch,.-baracuda_host_switch
)");
#elif defined(__aarch64__)
__asm__(R"(
.text
.hidden baracuda_host_switch
.globl baracuda_host_switch
.type baracuda_host_switch,%function
baracuda_host_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size baracuda_host_switch,.-baracuda_host_switch
)");
#endif
extern "C" void baracuda_host_switch(void** save, void* load);

namespace baracuda_host {

#ifdef BARACUDA_HOST_UCONTEXT
void fiber_prepare(Fiber& fiber, void (*entry)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.low;
  fiber.context.uc_stack.ss_size = static_cast<size_t>(reinterpret_cast<char*>(&fiber) - fiber.low);
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
}
void fiber_switch(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }
#else
// Lays out the frame that baracuda_host_switch pops: zeroed registers, then `entry` to return into.
void fiber_prepare(Fiber& fiber, void (*entry)()) {
  void** top = reinterpret_cast<void**>(&fiber);
#if defined(__x86_64__)
  void** frame = top - 8;  // 6 registers, the return address, and the slot that aligns the callee's stack
  memset(frame, 0, 8 * sizeof(void*));
  frame[6] = reinterpret_cast<void*>(entry);
#else
  void** frame = top - 20;
  memset(frame, 0, 20 * sizeof(void*));
  frame[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  fiber.stack_pointer = frame;
}
void fiber_switch(Fiber& from, Fiber& to) { baracuda_host_switch(&from.stack_pointer, to.stack_pointer); }
#endif

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Fiber* FiberStacks::take() {
  if (free_.empty() && !grow()) return nullptr;
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

// A fiber's description lies at the top of its stack, in the cache line its first frame touches anyway. Tops
// are staggered: at equal page offsets the hot frames of a block's threads would compete for a few cache sets.
bool FiberStacks::grow() {
  constexpr size_t count = 16, colours = 16, stagger = 128;
  const size_t stride = page_bytes() + bytes;
  void* memory =
      mmap(nullptr, count * stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  for (size_t i = 0; i < count; i++) {
    char* guard = static_cast<char*>(memory) + i * stride;
    mprotect(guard, page_bytes(), PROT_NONE);
    const size_t description = (sizeof(Fiber) + 63) / 64 * 64;
    char* top = guard + stride - (all_.size() % colours) * stagger - description;
    Fiber* fiber = new (top) Fiber{};
    fiber->low = guard + page_bytes();
    all_.push_back(fiber);
    free_.push_back(fiber);
  }
  return true;
}

bool FiberStacks::guards(const char* address) const {
  for (const Fiber* fiber : all_)
    if (address < fiber->low && address >= fiber->low - page_bytes()) return true;
  return false;
}

}  // namespace baracuda_host
