#include "comm/local/peer_watch.h"

#include <unistd.h>

#include <utility>

namespace bv {
PeerWatch::PeerWatch(SharedRegion& region, const RankPlace& place,
                     std::function<std::string()> failure)
    : region_(region),
      place_(place),
      patience_(place.timeout, place.run),
      failure_(std::move(failure)),
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
  while (!closing_) {
    pause_ms(watch_tick_ms);
    const uint64_t waiting = waiting_.load(std::memory_order_acquire);
    if (waiting != std::exchange(seen, waiting)) patience_.start_over();
    if (waiting % 2) check_peers();
  }
}

void PeerWatch::check_peers() {
  if (region_.control().ending) _exit(1);
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && has_died(region_.rank(peer)))
      end(name_of(place_.run, peer) + " has died", true, peer);
  if (const std::string why = failure_(); !why.empty()) end(why, true, -1);
  const auto others = [this](int peer) { return peer != place_.rank; };
  int named = stuck_peer();
  const std::string why = patience_.look(region_, place_.size, others, named);
  if (!why.empty()) end(why, false, named);
}

void PeerWatch::end(const std::string& why, bool a_peer_died, int culprit) {
  if (place_.run) place_.run->end(why, culprit);  // also tells the other machines
  end_process(region_, place_, why, a_peer_died, culprit);
}

// A stopped process has no heartbeat; a slow one has begun fewer waits than its peers.
int PeerWatch::stuck_peer() const {
  for (int peer = 0; peer < place_.size; ++peer)
    if (peer != place_.rank && !has_heartbeat(region_.rank(peer))) return peer;
  const uint64_t mine = region_.rank(place_.rank).waits;
  for (int peer = 0; peer < place_.size; ++peer)
    if (region_.rank(peer).waits < mine) return peer;
  return -1;
}

}  // namespace bv
