#include "comm/local/rank_barrier.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int spins = 300;      // about 15 us, the cost of falling asleep and waking
constexpr int grace_ms = 1000;  // lets the launcher act first
constexpr int stale_ms = 2000;  // after the last heartbeat

}  // namespace

bool has_died(RankStatus& peer) {
  if (peer.state != RankState::here) return false;
  const int result = pthread_mutex_trylock(&peer.alive);
  if (result == 0) pthread_mutex_unlock(&peer.alive);  // it left between the two checks
  return result == EOWNERDEAD || result == ENOTRECOVERABLE;
}

void end_process(SharedRegion& region, const RankPlace& place, const std::string& why,
                 bool a_peer_died, int culprit) {
  ControlBlock& control = region.control();
  for (int waited = 0; a_peer_died && place.supervised && waited < grace_ms && !control.ending;
       waited += 20)
    pause_ms(20);
  const std::string line = "rank " + std::to_string(place.rank) + ": " + why;
  if (!control.ending && region.claim_error(1, line)) {
    if (culprit >= 0) control.culprit = culprit + 1;
    print_error_line(line);
  }
  _exit(control.failed_exit_code > 0 ? int(control.failed_exit_code) : 1);
}

int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

bool has_heartbeat(const RankStatus& rank) { return monotonic_ms() - rank.heartbeat <= stale_ms; }

std::string PeerTimeout::add(int named, Busy busy) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(last_, now);
  const double counted = std::min(passed.count(), 2e-3 * watch_tick_ms);
  char text[96];
  if (busy != Busy::no) {
    waited_ = 0;  // a peer that is no longer busy has the whole timeout again
    if ((busy_ += counted) < of_busy * timeout_) return "";
    std::snprintf(text, sizeof text, " has been %s for %g s (%g times --timeout)",
                  busy == Busy::saving ? "saving" : "starting", of_busy * timeout_, of_busy);
    return name_of(run_, named) + text;
  }
  if ((waited_ += counted) < timeout_) return "";
  std::snprintf(text, sizeof text, " answered for %g s (--timeout)", timeout_);
  return (named < 0 ? "no rank's device has" : name_of(run_, named) + " has not") + text;
}

Heartbeat::Heartbeat(SharedRegion& region, const RankPlace& place)
    : self_(region.rank(place.rank)) {
  if (self_.state != RankState::absent)
    throw std::runtime_error("two processes are rank " + std::to_string(place.rank));
  pthread_mutex_lock(&self_.alive);
  self_.heartbeat = monotonic_ms();
  self_.state = RankState::here;
  heart_ = std::jthread([this] {
    std::unique_lock lock(mutex_);
    do self_.heartbeat = monotonic_ms();
    while (!changed_.wait_for(lock, std::chrono::milliseconds(watch_tick_ms),
                              [this] { return ending_; }));
  });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  self_.state = RankState::left;
  pthread_mutex_unlock(&self_.alive);
}

void PeerWait::look(const std::function<bool(int)>& awaited, int silent) {
  SharedRegion& region = group_.region;
  const RankPlace& place = group_.place;
  if (region.control().ending) _exit(1);
  std::vector<int> late;
  for (int member = 0; member < int(group_.members.size()); ++member) {
    if (!awaited(member)) continue;
    const int rank = group_.members[member];
    late.push_back(rank);
    RankStatus& status = region.rank(rank);
    const bool left = status.state == RankState::left;
    // It may have arrived and left between the two checks.
    if ((!left && !has_died(status)) || !awaited(member)) continue;
    const std::string why =
        name_of(place.run, place.in_run(rank)) + (left ? " has left the run" : " has died");
    if (place.run) place.run->end(why, place.in_run(rank));
    end_process(region, place, why, true, rank);
  }
  const auto is_late = [&](int rank) {
    return std::find(late.begin(), late.end(), rank) != late.end();
  };
  int named = late.empty() ? group_.members[silent] : late.front();
  // A late rank may itself wait for a stopped one, as stages of a pipeline do.
  const auto stopped = [&](int rank) {
    return region.rank(rank).state == RankState::here && !has_heartbeat(region.rank(rank));
  };
  for (int rank = 0; rank < place.size && !place.run && !stopped(named); ++rank)
    if (stopped(rank)) named = rank;
  const std::string why = place.run ? place.run->look(patience_, place.in_run(named))
                                    : patience_.look(region, place.size, is_late, named);
  if (why.empty()) return;
  if (place.run) place.run->end(why, -1);
  end_process(region, place, why, false, named);
}

void RankBarrier::wait() {
  const auto size = uint32_t(group_.members.size());
  const uint32_t generation = words_.generation.load(std::memory_order_acquire);
  members_[group_.rank].arrivals.fetch_add(1, std::memory_order_release);
  if (words_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
    words_.arrived.store(0, std::memory_order_relaxed);
    words_.generation.fetch_add(1, std::memory_order_release);
    futex_wake_all(words_.generation);
    return;
  }
  const auto passed = [&] {
    return words_.generation.load(std::memory_order_acquire) != generation;
  };
  for (int i = 0; i < spins; ++i) {
    if (passed()) return;
    _mm_pause();
  }
  PeerWait peers(group_);
  while (!passed()) {
    futex_wait(words_.generation, generation, watch_tick_ms);
    if (passed()) return;
    peers.look([this](int member) { return missing(member); }, int(size) - 1);
  }
}

bool RankBarrier::missing(int member) const {
  const auto arrivals = [&](int m) { return members_[m].arrivals.load(std::memory_order_acquire); };
  return int32_t(arrivals(group_.rank) - arrivals(member)) > 0;
}

}  // namespace bv
