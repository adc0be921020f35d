#include "kernels/comm/rank_barrier.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int spins = 300;      // about 15 us, the cost of falling asleep and waking
constexpr int grace_ms = 1000;  // for the launcher to act first

void print_line(const std::string& line) {
  // One write, so that lines of several processes don't mix. If it fails, nothing can be done.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

bool has_died(RankStatus& peer) {
  if (peer.state != RankState::here) return false;
  const int result = pthread_mutex_trylock(&peer.alive);
  if (result == 0) pthread_mutex_unlock(&peer.alive);  // it left between the two looks
  return result == EOWNERDEAD || result == ENOTRECOVERABLE;
}

void end_process(SharedRegion& region, const RankPlace& place, const std::string& why,
                 bool a_peer_died) {
  ControlBlock& control = region.control();
  for (int waited = 0; a_peer_died && place.supervised && waited < grace_ms && !control.ending;
       waited += 20)
    usleep(20000);
  if (!control.ending && region.claim_error(1))
    print_line("rank " + std::to_string(place.rank) + ": " + why + "\n");
  _exit(control.failed_exit_code > 0 ? int(control.failed_exit_code) : 1);
}

std::string no_answer(int rank, double timeout) {
  char text[64];
  std::snprintf(text, sizeof text, " answered for %g s (--timeout)", timeout);
  return (rank < 0 ? "no rank's device has" : "rank " + std::to_string(rank) + " has not") + text;
}

int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

double WaitTimer::look(bool start_over) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(last_, now);
  return waited_ = start_over ? 0 : waited_ + std::min(passed.count(), 2e-3 * watch_tick_ms);
}

RankBarrier::RankBarrier(SharedRegion& region, const RankPlace& place)
    : region_(region), place_(place) {
  if (place.rank < 0 || place.rank >= place.size || place.size != region.control().size)
    throw std::invalid_argument("rank " + std::to_string(place.rank) + " of " +
                                std::to_string(place.size) + " has no place in this run");
  RankStatus& self = region.rank(place.rank);
  if (self.state != RankState::absent)
    throw std::runtime_error("there are two processes of rank " + std::to_string(place.rank));
  pthread_mutex_lock(&self.alive);
  self.state = RankState::here;
}

RankBarrier::~RankBarrier() {
  RankStatus& self = region_.rank(place_.rank);
  self.state = RankState::left;
  pthread_mutex_unlock(&self.alive);
}

void RankBarrier::wait() {
  ControlBlock& control = region_.control();
  const uint32_t generation = control.generation.load(std::memory_order_acquire);
  region_.rank(place_.rank).arrivals.fetch_add(1, std::memory_order_release);
  if (control.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(place_.size)) {
    control.arrived.store(0, std::memory_order_relaxed);
    control.generation.fetch_add(1, std::memory_order_release);
    futex_wake_all(control.generation);
    return;
  }
  const auto passed = [&] {
    return control.generation.load(std::memory_order_acquire) != generation;
  };
  for (int i = 0; i < spins; ++i) {
    if (passed()) return;
    _mm_pause();
  }
  WaitTimer timer;
  while (!passed()) {
    futex_wait(control.generation, generation, watch_tick_ms);
    if (passed()) return;
    check_peers();
    bool busy = false;
    for (int peer = 0; peer < place_.size; ++peer) busy |= missing(peer) && region_.rank(peer).busy;
    if (timer.look(busy) < place_.timeout) continue;
    for (int peer = 0; peer < place_.size; ++peer)
      if (missing(peer)) end_process(region_, place_, no_answer(peer, place_.timeout), false);
  }
}

bool RankBarrier::missing(int peer) const {
  const auto arrivals = [&](int rank) {
    return region_.rank(rank).arrivals.load(std::memory_order_acquire);
  };
  return int32_t(arrivals(place_.rank) - arrivals(peer)) > 0;
}

void RankBarrier::check_peers() {
  if (region_.control().ending) _exit(1);
  for (int peer = 0; peer < place_.size; ++peer) {
    if (!missing(peer)) continue;
    RankStatus& status = region_.rank(peer);
    if (has_died(status) || status.state == RankState::left)
      end_process(region_, place_,
                  "rank " + std::to_string(peer) +
                      (status.state == RankState::left ? " has left the run" : " has died"),
                  true);
  }
}

}  // namespace bv
