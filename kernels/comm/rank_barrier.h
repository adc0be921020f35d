// Where the ranks of a run wait for each other. Every waiter is also a watchdog: a peer that has
// died or does not come within the timeout ends this process with a line that says so.
#pragma once
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "kernels/comm/run_watch.h"
#include "kernels/comm/shared_region.h"

namespace bv {

struct RankPlace {
  int rank, size;
  double timeout;   // seconds
  bool supervised;  // our launcher watches too
  // Of a run on several machines; ranks: the run's numbers of the ranks here, if they are others.
  RunWatch* run = nullptr;
  std::vector<int> ranks = {};
};

// Whether a process that had joined has ended without leaving.
bool has_died(RankStatus&);
// Writes to standard error in one piece, so that lines of several processes don't mix; gives up on a
// reader that takes nothing for two seconds.
void print_error_line(const std::string&);
// Prints this process's line on why the run ends, unless another process has printed one; doesn't
// return. When a peer died, a launcher that supervises speaks first: it knows the cause.
[[noreturn]] void end_process(SharedRegion&, const RankPlace&, const std::string& why,
                              bool a_peer_died);

int64_t monotonic_ms();
constexpr int watch_tick_ms = 100;  // between two looks at the peers
// Without a heartbeat for longer: stopped, not slow.
bool has_heartbeat(const RankStatus&);

// How long one rank has waited for others. A peer that is busy, with a heartbeat, gets ten times the
// timeout. The time between two looks counts as two ticks at most: a run that was stopped as a whole
// can resume.
class Patience {
 public:
  static constexpr double of_busy = 10;
  explicit Patience(double timeout, const RunWatch* run = nullptr) : timeout_(timeout), run_(run) {}
  void start_over() { waited_ = busy_ = 0, last_ = Clock::now(); }
  // Looks at the clock and at the peers for which awaited(rank) holds. Returns why the wait is over,
  // or "": "rank 3 has not answered for 60 s (--timeout)". That line names `silent`, a rank, or -1
  // for all.
  template <class Awaited>
  std::string look(const SharedRegion& region, int size, Awaited awaited, int silent) {
    const RankStatus* busy = nullptr;
    int who = -1;
    for (int r = 0; r < size && !busy; ++r)
      if (awaited(r) && region.rank(r).busy != Busy::no && has_heartbeat(region.rank(r)))
        busy = &region.rank(who = r);
    return add(who, busy ? busy->busy.load() : Busy::no, silent);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string add(int busy_rank, Busy, int silent);

  double timeout_;       // seconds, as are the others
  const RunWatch* run_;  // knows the ranks' names
  double waited_ = 0, busy_ = 0;
  Clock::time_point last_ = Clock::now();
};

// Made and destroyed by one thread, which lives as long as the process; wait() may be called from
// any thread, one at a time. A thread of its own keeps this rank's heartbeat.
class RankBarrier {
 public:
  RankBarrier(SharedRegion&, const RankPlace&);
  RankBarrier(const RankBarrier&) = delete;
  ~RankBarrier();
  void wait();
  void busy(Busy now) { region_.rank(place_.rank).busy = now; }

 private:
  bool missing(int peer) const;  // has not come to the barrier that this rank waits at
  void check_peers();            // doesn't return if one is gone
  void check_patience(Patience&);
  int in_run(int peer) const { return place_.ranks.empty() ? peer : place_.ranks[size_t(peer)]; }

  SharedRegion& region_;
  RankPlace place_;
  std::jthread heart_;
};

}  // namespace bv
