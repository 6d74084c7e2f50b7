// How an OS thread is prepared for running kernels: signals, their stack, their timer.
#pragma once
#include <fenv.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

namespace baracuda_host {

static const int stop_signal = SIGRTMIN + 7;
static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static constexpr double grace = 0.1;  // seconds to reach a barrier after the timeout

// Lets an OS thread run fibers: a stack for the handler of a stack overflow, and the default rounding, which
// some libraries change for every thread that starts after them.
class RunsFibers {
 public:
  explicit RunsFibers(OsThread& os) {
    os.handle = pthread_self();
    if (!os.signal_stack) os.signal_stack = malloc(signal_stack_bytes);
    stack_t own{};
    own.ss_sp = os.signal_stack;
    own.ss_size = signal_stack_bytes;
    sigaltstack(&own, &signal_stack_);
    fegetenv(&environment_);
    fesetenv(FE_DFL_ENV);
  }
  ~RunsFibers() {
    fesetenv(&environment_);
    sigaltstack(&signal_stack_, nullptr);
    worker = nullptr;
  }

 private:
  static constexpr size_t signal_stack_bytes = 64 << 10;
  stack_t signal_stack_;
  fenv_t environment_;
};

// First a request to leave at the next barrier; a thread that reaches none is interrupted. A stop that
// arrives when the kernel has just ended is void.
static void handle_stop(int, siginfo_t*, void*) {
  if (!worker || !worker->os->in_kernel) return;
  if (!aborting.exchange(true)) return;
  report_and_abandon("stopped by the launch timeout");
}

// Our handlers of faults are installed only while a launch runs: the process may have its own.
class SignalHandlers {
 public:
  SignalHandlers() {
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = handle_stop;
    sigaction(stop_signal, &action, nullptr);  // for good: a stop may arrive after its launch
    action.sa_sigaction = handle_fault;
    for (size_t i = 0; i < count; i++) sigaction(fault_signals[i], &action, &before_[i]);
  }
  ~SignalHandlers() {
    for (size_t i = 0; i < count; i++) sigaction(fault_signals[i], &before_[i], nullptr);
  }

 private:
  static constexpr size_t count = sizeof fault_signals / sizeof *fault_signals;
  struct sigaction before_[count];
};

// Sends this thread the stop signal at the timeout and, every `grace` seconds, again.
class StopTimer {
 public:
  explicit StopTimer(double timeout) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = stop_signal;
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    armed_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec when{span(grace), span(timeout)};
    if (armed_) timer_settime(timer_, 0, &when, nullptr);
  }
  ~StopTimer() {
    if (armed_) timer_delete(timer_);
  }

 private:
  static timespec span(double seconds) {
    const auto whole = static_cast<time_t>(seconds);
    return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9) + 1};
  }
  timer_t timer_;
  bool armed_;
};

}  // namespace baracuda_host
