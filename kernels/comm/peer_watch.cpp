#include "kernels/comm/peer_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int tick_ms = 100;
constexpr int64_t stale_ms = 2000;  // without a heartbeat: stopped, not slow

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

}  // namespace

PeerWatch::PeerWatch(SharedRegion& region, const RankPlace& place,
                     std::function<std::string()> broken, std::function<void()> ends)
    : region_(region),
      place_(place),
      broken_(std::move(broken)),
      ends_(std::move(ends)),
      thread_([this] { run(); }) {}

PeerWatch::~PeerWatch() {
  closing_ = true;
  thread_.join();
}

void PeerWatch::wait_begins() {
  region_.rank(place_.rank).waits.fetch_add(1, std::memory_order_relaxed);
  waiting_.fetch_add(1, std::memory_order_release);
}
void PeerWatch::wait_ends() { waiting_.fetch_add(1, std::memory_order_release); }

void PeerWatch::run() {
  uint64_t seen = 0;
  double waited = 0;
  auto last = Clock::now();
  while (!closing_) {
    usleep(tick_ms * 1000);
    region_.rank(place_.rank).heartbeat = now_ms();
    // A tick counts as no more than two, so that a run that was stopped as a whole (Ctrl-Z) goes on.
    const auto now = Clock::now();
    const double tick = std::min(std::chrono::duration<double>(now - last).count(), 2e-3 * tick_ms);
    last = now;
    const uint64_t waiting = waiting_.load(std::memory_order_acquire);
    waited = waiting == seen && waiting % 2 ? waited + tick : 0;
    seen = waiting;
    if (waiting % 2) look(waited);
  }
}

void PeerWatch::look(double waited) {
  if (region_.board().ending) _exit(1);
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && has_died(region_.rank(peer)))
      end("rank " + std::to_string(peer) + " has died", true);
  if (const std::string why = broken_(); !why.empty()) end(why, true);
  if (waited < place_.timeout) return;
  for (int peer = 0; peer < place_.size; ++peer)
    if (region_.rank(peer).busy) return;
  char why[128];
  if (const int peer = stuck_peer(); peer >= 0)
    std::snprintf(why, sizeof why, "rank %d has not answered for %g s (--timeout)", peer,
                  place_.timeout);
  else
    std::snprintf(why, sizeof why, "no rank's device has answered for %g s (--timeout)",
                  place_.timeout);
  end(why, false);
}

void PeerWatch::end(const std::string& why, bool a_peer_died) {
  ends_();
  end_process(region_, place_, why, a_peer_died);
}

// A process that is stopped has no heartbeat; one that is slow has begun fewer waits.
int PeerWatch::stuck_peer() const {
  const int64_t now = now_ms();
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && now - region_.rank(peer).heartbeat > stale_ms) return peer;
  const uint64_t mine = region_.rank(place_.rank).waits;
  for (int peer = 0; peer < place_.size; ++peer)
    if (region_.rank(peer).waits < mine) return peer;
  return -1;
}

}  // namespace bv
