#include "simt/device/watch.h"

#include <execinfo.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace simt {
namespace {

double timeout() {
  const char* set = std::getenv("SIMT_TIMEOUT");
  const double seconds = set ? std::atof(set) : 0;
  return seconds > 0 ? seconds : 60;
}

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void* stack[32];
std::atomic<int> depth = 0;

// The line at which the host thread is that runs a block: ", at my.cu:4".
std::string place(pthread_t thread) {
  if (!line_of) return "";
  std::signal(SIGUSR2, [](int) { depth = backtrace(stack, 32); });
  pthread_kill(thread, SIGUSR2);
  for (int i = 0; i < 100 && !depth; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string line = line_of(std::vector<void*>(stack, stack + depth));
  return line.empty() ? "" : ", at " + line.substr(0, line.find(": "));
}

[[noreturn]] void end_process(const Block& block, pthread_t thread) {
  char where[Block::max_description], text[Block::max_description + 400];
  block.describe(where);
  const int n =
      std::snprintf(text, sizeof text,
                    "simt: %s: still running after %g s of processor time (SIMT_TIMEOUT)%.250s\n",
                    where, timeout(), place(thread).c_str());
  if (write(STDERR_FILENO, text, static_cast<size_t>(n)) != n) std::_Exit(1);
  std::abort();
}

// Watches all blocks from a separate host thread.
class Watch {
 public:
  static Watch& instance() {
    static Watch& watch = *new Watch;
    return watch;
  }

  void add(const Block& block) {
    const std::lock_guard lock(mutex_);
    if (!running_) std::thread([this] { run(); }).detach();
    running_ = true;
    Entry entry{.block = &block, .thread = pthread_self()};
    pthread_getcpuclockid(pthread_self(), &entry.clock);
    entries_.push_back(entry);
  }
  void remove(const Block& block) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& e) { return e.block == &block; });
  }

 private:
  struct Entry {
    const Block* block;
    pthread_t thread;
    clockid_t clock{};   // processor time of its host thread
    uint64_t begun = 0;  // number of the last block seen,
    double since = 0;    // and when it was first seen
  };

  Watch() {
    // A child of fork() has no such thread, and needs the lock to be free.
    pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                   [] {
                     instance().running_ = false;
                     instance().mutex_.unlock();
                   });
  }

  void run() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(1.0, timeout() / 8)));
      const std::lock_guard lock(mutex_);
      for (Entry& e : entries_) {
        const double now = seconds_of(e.clock);
        if (e.block->begun() != e.begun) e.begun = e.block->begun(), e.since = now;
        if (now - e.since > timeout()) end_process(*e.block, e.thread);
      }
    }
  }

  std::mutex mutex_;
  bool running_ = false;
  std::vector<Entry> entries_;
};

}  // namespace

Watched::Watched(const Block& block) : block_(block) { Watch::instance().add(block); }
Watched::~Watched() { Watch::instance().remove(block_); }

}  // namespace simt
