#include "kernels/comm/rank_barrier.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int spins = 300;      // some 15 us: about what falling asleep and waking costs
constexpr int tick_ms = 100;    // between two looks at the peers
constexpr int grace_ms = 1000;  // for the launcher to act first

void print_line(const std::string& line) {
  // One write, so that lines of several processes don't mix. Nothing can be done where it fails.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

bool has_died(RankBoard& peer) {
  if (peer.state != RankState::here) return false;
  const int result = pthread_mutex_trylock(&peer.alive);
  if (result == 0) pthread_mutex_unlock(&peer.alive);  // it left between the two looks
  return result == EOWNERDEAD || result == ENOTRECOVERABLE;
}

void end_process(SharedRegion& region, const RankPlace& place, const std::string& why,
                 bool a_peer_died) {
  Board& board = region.board();
  for (int waited = 0; a_peer_died && place.supervised && waited < grace_ms && !board.ending;
       waited += 20)
    usleep(20000);
  if (!board.ending && region.claim_error(1))
    print_line("rank " + std::to_string(place.rank) + ": " + why + "\n");
  _exit(board.failed_exit_code > 0 ? int(board.failed_exit_code) : 1);
}

RankBarrier::RankBarrier(SharedRegion& region, const RankPlace& place)
    : region_(region), place_(place) {
  if (place.rank < 0 || place.rank >= place.size || place.size != region.board().size)
    throw std::invalid_argument("rank " + std::to_string(place.rank) + " of " +
                                std::to_string(place.size) + " has no place on this board");
  RankBoard& self = region.rank(place.rank);
  if (self.state != RankState::absent)
    throw std::runtime_error("there are two processes of rank " + std::to_string(place.rank));
  pthread_mutex_lock(&self.alive);
  self.state = RankState::here;
}

RankBarrier::~RankBarrier() {
  RankBoard& self = region_.rank(place_.rank);
  self.state = RankState::left;
  pthread_mutex_unlock(&self.alive);
}

void RankBarrier::wait() {
  Board& board = region_.board();
  const uint32_t generation = board.generation.load(std::memory_order_acquire);
  region_.rank(place_.rank).arrivals.fetch_add(1, std::memory_order_release);
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(place_.size)) {
    board.arrived.store(0, std::memory_order_relaxed);
    board.generation.fetch_add(1, std::memory_order_release);
    futex_wake_all(board.generation);
    return;
  }
  const auto passed = [&] {
    return board.generation.load(std::memory_order_acquire) != generation;
  };
  for (int i = 0; i < spins; ++i) {
    if (passed()) return;
    _mm_pause();
  }
  // A tick counts as no more than two, so that a run that was stopped as a whole (Ctrl-Z) goes on.
  double waited = 0;
  while (!passed()) {
    const auto start = Clock::now();
    futex_wait(board.generation, generation, tick_ms);
    if (passed()) return;
    look_around();
    const std::chrono::duration<double> tick = Clock::now() - start;
    waited += std::min(tick.count(), 2e-3 * tick_ms);
    for (int peer = 0; peer < place_.size; ++peer)
      if (missing(peer) && region_.rank(peer).busy) waited = 0;
    if (waited < place_.timeout) continue;
    for (int peer = 0; peer < place_.size; ++peer)
      if (missing(peer)) end_for_stuck(peer);
  }
}

bool RankBarrier::missing(int peer) const {
  const uint32_t mine = region_.rank(place_.rank).arrivals.load(std::memory_order_acquire);
  return static_cast<int32_t>(mine - region_.rank(peer).arrivals.load(std::memory_order_acquire)) >
         0;
}

void RankBarrier::look_around() {
  if (region_.board().ending) _exit(1);
  for (int peer = 0; peer < place_.size; ++peer) {
    if (!missing(peer)) continue;
    if (has_died(region_.rank(peer))) end_for_dead(peer, "has died");
    if (region_.rank(peer).state == RankState::left) end_for_dead(peer, "has left the run");
  }
}

void RankBarrier::end_for_dead(int peer, const char* what) {
  end_process(region_, place_, "rank " + std::to_string(peer) + " " + what, true);
}

void RankBarrier::end_for_stuck(int peer) {
  char why[96];
  std::snprintf(why, sizeof why, "rank %d has not answered for %g s (--timeout)", peer,
                place_.timeout);
  end_process(region_, place_, why, false);
}

}  // namespace bv
