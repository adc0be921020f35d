#include "simt/device/faults.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "simt/device/block.h"

namespace simt {
namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[std::size(signals)];

void print(const char* what) {
  const Block* block = Block::current();
  if (!block) return;
  char where[Block::max_description], text[Block::max_description + 200];
  block->describe(where);
  const int n = std::snprintf(text, sizeof text, "simt: %s: %s\n", where, what);
  if (write(STDERR_FILENO, text, static_cast<size_t>(n)) != n) return;
}

void explain(int signal, const siginfo_t& info) {
  const Block* block = Block::current();
  if (!block) return;
  char what[100];
  if (signal == SIGFPE)
    std::snprintf(what, sizeof what, "an integer divided by zero");
  else if (signal == SIGILL)
    std::snprintf(what, sizeof what, "an illegal instruction");
  else if (info.si_code == SI_KERNEL)  // the CPU doesn't report the address
    std::snprintf(what, sizeof what, "a misaligned vector access, or a wild pointer");
  else if (block->on_guard_page(info.si_addr))
    std::snprintf(what, sizeof what, "its stack of %zu KiB has overflowed", stack_bytes / 1024);
  else
    std::snprintf(what, sizeof what, "no memory at %p", info.si_addr);
  print(what);
}

// Explains the fault, then calls the previous handler or takes the default action.
void on_signal(int signal, siginfo_t* info, void* context) {
  explain(signal, *info);
  for (size_t i = 0; i < std::size(signals); ++i) {
    if (signals[i] != signal) continue;
    const struct sigaction& next = before[i];
    if (next.sa_flags & SA_SIGINFO) return next.sa_sigaction(signal, info, context);
    if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) return next.sa_handler(signal);
    sigaction(signal, &next, nullptr);  // returning repeats the fault
  }
}

bool install() {
  if constexpr (asan) {  // ASan handles these signals itself, and calls this after a report
    __sanitizer_set_death_callback([] { print("reported by AddressSanitizer"); });
    return true;
  }
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &action, &before[i]);
  return true;
}

// A stack for the handlers: a fiber's own may have overflowed.
class SignalStack {
 public:
  SignalStack() {
    stack_t present{};
    if (asan || sigaltstack(nullptr, &present) || !(present.ss_flags & SS_DISABLE)) return;
    memory_ = std::make_unique_for_overwrite<char[]>(bytes);
    const stack_t mine{.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = bytes};
    sigaltstack(&mine, nullptr);
  }
  ~SignalStack() {
    if (!memory_) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  static constexpr size_t bytes = 64 * 1024;
  std::unique_ptr<char[]> memory_;
};

}  // namespace

// UndefinedBehaviorSanitizer, if linked, calls this before each of its reports.
extern "C" void __ubsan_on_report();
extern "C" void __ubsan_on_report() { print("undefined behaviour:"); }

void explain_faults_on_this_thread() {
  static const bool installed = install();
  thread_local const SignalStack stack;
  (void)installed, (void)stack;
}

}  // namespace simt
