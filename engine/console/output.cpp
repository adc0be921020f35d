#include "engine/console/output.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/wait.h"

namespace bv {
namespace {

constexpr size_t max_behind = 1 << 20;
constexpr std::chrono::seconds last_wait{2};

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EAGAIN) {  // another process made it non-blocking
      pollfd item{fd, POLLOUT, 0};
      wait_for_files({&item, 1}, -1);
    } else if (n < 0 && errno != EINTR) {
      return false;
    }
    if (n > 0) text.remove_prefix(size_t(n));
  }
  return true;
}

}  // namespace

struct Output::State {
  std::mutex mutex;
  Condition changed;
  std::string pending;
  bool left_out = false, writing = false, broken = false, closing = false;

  void run(int fd) {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !pending.empty() || closing; });
      if (pending.empty()) return;
      std::string text = std::exchange(pending, {});
      if (std::exchange(left_out, false)) text += "(output is missing here: nobody read it)\n";
      writing = true;
      lock.unlock();
      const bool written = write_all(fd, text);
      lock.lock();
      broken |= !written;
      writing = false;
      changed.notify_all();
    }
  }
};

Output::Output(int fd) : state_(std::make_shared<State>()) {
  std::thread([state = state_, fd] { state->run(fd); }).detach();
}

Output::~Output() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, last_wait,
                           [this] { return state_->pending.empty() && !state_->writing; });
  state_->closing = true;
  state_->changed.notify_all();
}

void Output::print(std::string_view text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->broken) return;
  state_->left_out |= state_->pending.size() + text.size() > max_behind;
  if (state_->left_out) return;
  state_->pending += text;
  state_->changed.notify_all();
}

}  // namespace bv
