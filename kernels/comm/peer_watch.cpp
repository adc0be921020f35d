#include "kernels/comm/peer_watch.h"

#include <unistd.h>

#include <utility>

namespace bv {
namespace {

constexpr int64_t stale_ms = 2000;  // without a heartbeat: stopped, not slow

}  // namespace

PeerWatch::PeerWatch(SharedRegion& region, const RankPlace& place,
                     std::function<std::string()> failure, std::function<void()> before_end)
    : region_(region),
      place_(place),
      failure_(std::move(failure)),
      before_end_(std::move(before_end)),
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
  WaitTimer timer;
  while (!closing_) {
    usleep(watch_tick_ms * 1000);
    region_.rank(place_.rank).heartbeat = monotonic_ms();
    const uint64_t waiting = waiting_.load(std::memory_order_acquire);
    const double waited = timer.look(waiting != seen || waiting % 2 == 0);
    seen = waiting;
    if (waiting % 2) check_peers(waited);
  }
}

void PeerWatch::check_peers(double waited) {
  if (region_.control().ending) _exit(1);
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && has_died(region_.rank(peer)))
      end("rank " + std::to_string(peer) + " has died", true);
  if (const std::string why = failure_(); !why.empty()) end(why, true);
  if (waited < place_.timeout) return;
  for (int peer = 0; peer < place_.size; ++peer)
    if (region_.rank(peer).busy) return;
  end(no_answer(stuck_peer(), place_.timeout), false);
}

void PeerWatch::end(const std::string& why, bool a_peer_died) {
  before_end_();
  end_process(region_, place_, why, a_peer_died);
}

// A stopped process has no heartbeat; a slow one has begun fewer waits.
int PeerWatch::stuck_peer() const {
  const int64_t now = monotonic_ms();
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && now - region_.rank(peer).heartbeat > stale_ms) return peer;
  const uint64_t mine = region_.rank(place_.rank).waits;
  for (int peer = 0; peer < place_.size; ++peer)
    if (region_.rank(peer).waits < mine) return peer;
  return -1;
}

}  // namespace bv
