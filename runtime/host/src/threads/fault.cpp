// Findings: what a kernel did that a GPU would not allow, and how a block that did it is left.
#include <mutex>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../check/checker.h"
#include "state.h"

namespace baracuda_host {

std::atomic<bool> aborting{false};
static std::mutex& findings_lock = *new std::mutex;  // never destroyed: workers outlive static destructors
static std::vector<std::string>& findings = *new std::vector<std::string>;

void report(std::string finding) {
  const std::lock_guard<std::mutex> guard(findings_lock);
  if (findings.size() < 32) findings.push_back(std::move(finding));
}

// All findings, one per line; forgets them.
std::string take_findings() {
  const std::lock_guard<std::mutex> guard(findings_lock);
  std::string text;
  for (const std::string& finding : findings) text += (text.empty() ? "" : "\n") + finding;
  findings.clear();
  return text;
}

std::string place(Site site) {
  const char* slash = strrchr(site.file, '/');
  return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

static std::string triple(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string block_name() { return "block " + triple(worker->view.index); }
std::string whoami() { return block_name() + " thread " + triple(running().index); }

[[noreturn]] void abandon() {
  aborting = true;
  siglongjmp(worker->os->abandoned, 1);
}

void fail(const std::string& what, Site site) {
  if (checker) checker->say(what);
  else report(whoami() + ": " + what + " at " + place(site));
  abandon();
}
void fail(const char* what, Site site) { fail(std::string(what), site); }

static const char* access_kind(const void* context) {
#if defined(__x86_64__) && defined(REG_ERR)
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return registers[REG_ERR] & 2 ? "write" : "read";
#else
  (void)context;
  return "access";
#endif
}

static std::string describe_access(const Worker& w, const char* address, const void* context) {
  if (w.os->stacks.guards(address))
    return "stack overflow, local arrays over " + std::to_string(FiberStacks::bytes >> 10) + " KiB";
  const size_t shared = w.launch->kernel->dynamic_shared;
  const char* end = w.dynamic + w.dynamic_bytes;
  char text[64];
  snprintf(text, sizeof text, "%p", static_cast<const void*>(address));
  std::string finding = std::string("invalid ") + access_kind(context) + " at address " + text;
  if (address >= end && address < end + page_bytes())
    finding += ", past the end of dynamic shared memory (DYN_SHARED_BYTES is " + std::to_string(shared) + ")";
  return finding;
}

// Reporting from a signal handler is safe here: a fault is synchronous and kernels take no lock, and a thread
// is stopped only after it ignored `aborting` for a while, so in kernel code too.
void report_and_abandon(const char* what) {
  report(whoami() + ": " + what);
  abandon();
}

void handle_fault(int signal, siginfo_t* info, void* context) {
  const Worker* w = worker;
  if (!w || !w->os->in_kernel) {  // not ours: the default action follows when the instruction runs again
    ::signal(signal, SIG_DFL);
    return;
  }
  if (signal == SIGFPE) report_and_abandon("integer division by zero or overflow");
  if (signal == SIGILL) report_and_abandon("illegal instruction");
  report(whoami() + ": " + describe_access(*w, static_cast<char*>(info->si_addr), context));
  abandon();
}

}  // namespace baracuda_host
