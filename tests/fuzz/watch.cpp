// The address sanitizer reports every allocation; an alarm reports a hang.
#include "tests/fuzz/watch.h"

#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

// Declared here, because g++ doesn't install <sanitizer/allocator_interface.h>.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void*);
void __sanitizer_set_death_callback(void (*)());
}

extern "C" const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }

namespace bv::test::fuzz {
namespace {

// Global, because hooks and signal handlers can reach nothing else. One mutant is read at a time.
struct Watch {
  uint64_t mutant = 0;
  bool on = false;
  size_t limit = 0, taken = 0, most = 0;
} watch;

void on_malloc(const volatile void*, size_t bytes) {
  if (!watch.on) return;
  watch.taken += bytes;
  watch.most = std::max(watch.most, watch.taken);
}

void on_free(const volatile void* memory) {
  if (!watch.on || !memory) return;
  const size_t bytes = __sanitizer_get_allocated_size(memory);
  watch.taken -= std::min(bytes, watch.taken);
}

void say(const char* what) {
  char line[200];
  const int n =
      std::snprintf(line, sizeof line, "mutant %llu %s; again: %.80s %llu 1\n",
                    static_cast<unsigned long long>(watch.mutant), what,
                    program_invocation_short_name, static_cast<unsigned long long>(watch.mutant));
  if (write(STDERR_FILENO, line, size_t(n)) < 0) return;
}

void on_alarm(int) {
  say("hangs");
  _exit(1);
}
void on_death() { say("ended the program"); }

}  // namespace

void begin_watch(uint64_t mutant, size_t bytes) {
  static const bool installed = [] {
    for (const int alarm : {SIGALRM, SIGPROF}) signal(alarm, on_alarm);
    __sanitizer_set_death_callback(on_death);
    return __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
  }();
  if (!installed) std::fprintf(stderr, "allocations can't be watched\n"), std::exit(1);
  watch = {.mutant = mutant, .on = true, .limit = bytes};
}

size_t end_watch() {
  watch.on = false;
  return watch.most > watch.limit ? watch.most : 0;
}

// Limits processor time, which a busy machine doesn't lengthen, and elapsed time to ten times that.
void arm(unsigned seconds) {
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
  alarm(10 * seconds);
}

}  // namespace bv::test::fuzz
