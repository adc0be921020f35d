// Where the ranks of a run wait for each other. Every waiter is also a watchdog: a peer that has
// died or does not come within the timeout ends this process with a line that says so.
#pragma once
#include <chrono>
#include <string>

#include "kernels/comm/shared_region.h"

namespace bv {

struct RankPlace {
  int rank, size;
  double timeout;   // seconds
  bool supervised;  // our launcher watches too
};

// Whether a process that had joined has ended without leaving.
bool has_died(RankStatus&);
// Prints this process's line on why the run ends, unless another process has printed one; doesn't
// return. When a peer died, a launcher that supervises speaks first: it knows the cause.
[[noreturn]] void end_process(SharedRegion&, const RankPlace&, const std::string& why,
                              bool a_peer_died);
// "rank 3 has not answered for 60 s (--timeout)"; rank -1: "no rank's device has".
std::string no_answer(int rank, double timeout);

int64_t monotonic_ms();
constexpr int watch_tick_ms = 100;  // between two looks at the peers

// Adds up the time between looks, at most two ticks each: a run stopped as a whole can resume.
class WaitTimer {
 public:
  double look(bool start_over);  // seconds waited

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double waited_ = 0;
};

// Made and destroyed by one thread, which lives as long as the process; wait() may be called from
// any thread, one at a time.
class RankBarrier {
 public:
  RankBarrier(SharedRegion&, const RankPlace&);
  RankBarrier(const RankBarrier&) = delete;
  ~RankBarrier();
  void wait();
  void busy(bool now) { region_.rank(place_.rank).busy = now; }

 private:
  bool missing(int peer) const;  // has not come to the barrier that this rank waits at
  void check_peers();            // doesn't return if one is gone

  SharedRegion& region_;
  RankPlace place_;
};

}  // namespace bv
