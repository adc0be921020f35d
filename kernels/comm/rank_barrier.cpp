#include "kernels/comm/rank_barrier.h"

#include <immintrin.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int spins = 300;      // about 15 us, the cost of falling asleep and waking
constexpr int grace_ms = 1000;  // for the launcher to act first
constexpr int stale_ms = 2000;  // after the last heartbeat

}  // namespace

void print_error_line(const std::string& line) {
  constexpr int patience_ms = 2000;
  const std::string text = line + "\n";
  pollfd item{STDERR_FILENO, POLLOUT, 0};
  if (poll(&item, 1, patience_ms) < 1) return;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nothing can be done
}

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
    print_error_line("rank " + std::to_string(place.rank) + ": " + why);
  _exit(control.failed_exit_code > 0 ? int(control.failed_exit_code) : 1);
}

int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

bool has_heartbeat(const RankStatus& rank) { return monotonic_ms() - rank.heartbeat <= stale_ms; }

std::string Patience::add(int busy_rank, Busy busy, int silent) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(last_, now);
  const double counted = std::min(passed.count(), 2e-3 * watch_tick_ms);
  char text[96];
  if (busy != Busy::no) {
    waited_ = 0;  // once it is done, it has the whole timeout
    if ((busy_ += counted) < of_busy * timeout_) return "";
    std::snprintf(text, sizeof text, " has been %s for %g s (%g times --timeout)",
                  busy == Busy::saving ? "saving" : "starting", of_busy * timeout_, of_busy);
    return name_of(run_, busy_rank) + text;
  }
  if ((waited_ += counted) < timeout_) return "";
  std::snprintf(text, sizeof text, " answered for %g s (--timeout)", timeout_);
  return (silent < 0 ? "no rank's device has" : name_of(run_, silent) + " has not") + text;
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
  self.heartbeat = monotonic_ms();
  self.state = RankState::here;
  heart_ = std::jthread([&self](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ending;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      self.heartbeat = monotonic_ms();
      ending.wait_for(lock, stop, std::chrono::milliseconds(watch_tick_ms), [] { return false; });
    }
  });
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
  Patience patience(place_.timeout, place_.run);
  while (!passed()) {
    futex_wait(control.generation, generation, watch_tick_ms);
    if (passed()) return;
    check_peers();
    check_patience(patience);
  }
}

void RankBarrier::check_patience(Patience& patience) {
  const auto awaited = [this](int peer) { return missing(peer); };
  int silent = 0;
  while (silent + 1 < place_.size && !missing(silent)) ++silent;
  const std::string why = place_.run ? place_.run->look(patience, in_run(silent))
                                     : patience.look(region_, place_.size, awaited, silent);
  if (why.empty()) return;
  if (place_.run) place_.run->end(why, -1);
  end_process(region_, place_, why, false);
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
    if (!has_died(status) && status.state != RankState::left) continue;
    const std::string why = name_of(place_.run, in_run(peer)) +
                            (status.state == RankState::left ? " has left the run" : " has died");
    if (place_.run) place_.run->end(why, in_run(peer));
    end_process(region_, place_, why, true);
  }
}

}  // namespace bv
