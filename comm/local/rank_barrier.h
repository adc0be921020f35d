// Barrier between the ranks of a run. Every waiting rank is also a watchdog: if a peer dies, or
// doesn't arrive within the timeout, the waiting rank prints the reason and ends its process.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.h"
#include "comm/local/run_watch.h"
#include "comm/local/shared_region.h"

namespace bv {

struct RankPlace {
  int rank, size;
  double timeout;   // seconds
  bool supervised;  // our launcher watches too
  // Set in runs on several machines. ranks: the local ranks' numbers in the run, if they differ.
  RunWatch* run = nullptr;
  std::vector<int> ranks = {};
  int in_run(int r) const { return ranks.empty() ? r : ranks[size_t(r)]; }
};

// Whether a process that had joined has ended without leaving.
bool has_died(RankStatus&);
// Prints why the run ends, unless another process has done so; doesn't return. If a peer died, a
// supervising launcher prints first, since it knows the cause. culprit: the run's rank that `why`
// names, for the launcher; -1: none.
[[noreturn]] void end_process(SharedRegion&, const RankPlace&, const std::string& why,
                              bool a_peer_died, int culprit = -1);

int64_t monotonic_ms();
constexpr int watch_tick_ms = 100;  // between two checks of the peers
// False without a recent heartbeat: the rank is stopped, not slow.
bool has_heartbeat(const RankStatus&);

// Measures how long one rank has waited for others. A busy peer with a heartbeat gets ten times the
// timeout. The time between two checks counts as at most two ticks, so that a run that was
// suspended as a whole can continue.
class PeerTimeout {
 public:
  static constexpr double of_busy = 10;
  explicit PeerTimeout(double timeout, const RunWatch* run = nullptr)
      : timeout_(timeout), run_(run) {}
  void start_over() { waited_ = busy_ = 0, last_ = Clock::now(); }
  // Checks the clock and the peers for which awaited(rank) holds. Returns "", or why the wait is
  // over: "rank 3 has not answered for 60 s (--timeout)". named: the rank that this line names, -1
  // for none; if a peer is busy, the line names that peer, and `named` is set to it.
  template <class Awaited>
  std::string look(const SharedRegion& region, int size, Awaited awaited, int& named) {
    const RankStatus* busy = nullptr;
    for (int r = 0; r < size && !busy; ++r)
      if (awaited(r) && region.rank(r).busy != Busy::no && has_heartbeat(region.rank(r)))
        busy = &region.rank(named = r);
    return add(named, busy ? busy->busy.load() : Busy::no);
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string add(int named, Busy);

  double timeout_;       // all times are in seconds
  const RunWatch* run_;  // for the ranks' names
  double waited_ = 0, busy_ = 0;
  Clock::time_point last_ = Clock::now();
};

// Shows this rank's peers that it is alive. Made and destroyed by one thread, which must live as
// long as the process, as it holds RankStatus::alive. A separate thread updates the heartbeat.
class Heartbeat {
 public:
  Heartbeat(SharedRegion&, const RankPlace&);
  Heartbeat(const Heartbeat&) = delete;
  ~Heartbeat();

 private:
  RankStatus& self_;
  std::mutex mutex_;
  Condition changed_;
  bool ending_ = false;
  std::jthread heart_;
};

// The ranks of a communicator; `members` has their ranks in the region.
struct RankGroup {
  SharedRegion& region;
  const RankPlace& place;  // of this process in the run
  std::vector<int> members;
  int rank;  // this process's rank in the group
};

// One wait of this rank for others of its group.
class PeerWait {
 public:
  explicit PeerWait(const RankGroup& group)
      : group_(group), patience_(group.place.timeout, group.place.run) {}
  // Doesn't return if a member for which awaited(member) holds is gone or too late. `silent`: the
  // member to name if none is awaited any more.
  void look(const std::function<bool(int)>& awaited, int silent);
  void start_over() { patience_.start_over(); }  // called when something has arrived

 private:
  const RankGroup& group_;
  PeerTimeout patience_;
};

// Words that the ranks at a barrier share; zero at first.
struct alignas(64) BarrierWords {
  std::atomic<uint32_t> arrived;                 // at the current barrier
  alignas(64) std::atomic<uint32_t> generation;  // barriers passed; waiters sleep on it
};
struct alignas(64) MemberWords {
  std::atomic<uint32_t> arrivals;  // number of barriers that this member has reached
  std::atomic<uint32_t> bell;      // the member sleeps on it during an exchange
};

// wait() may be called from any thread, one at a time.
class RankBarrier {
 public:
  RankBarrier(const RankGroup& group, BarrierWords& words, MemberWords* members)
      : group_(group), words_(words), members_(members) {}
  void wait();

 private:
  bool missing(int member) const;  // has not reached the barrier at which this rank waits

  const RankGroup& group_;
  BarrierWords& words_;
  MemberWords* members_;
};

}  // namespace bv
