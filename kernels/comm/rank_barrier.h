// Where the ranks of a run wait for one another. Whoever waits is the watchdog too: a peer that has
// died or doesn't come within the timeout ends this process with a line that says so.
#pragma once
#include <string>

#include "kernels/comm/shared_region.h"

namespace bv {

struct RankPlace {
  int rank, size;
  double timeout;   // seconds
  bool supervised;  // a launcher of ours watches too; it has the first word when a peer dies
};

// Whether a process that was here has ended in any way but leaving.
bool has_died(RankBoard&);
// This process's line on why the run ends, unless another process has said why; doesn't return. A
// launcher that supervises has the first word when a peer died: it knows of what.
[[noreturn]] void end_process(SharedRegion&, const RankPlace&, const std::string& why,
                              bool a_peer_died);

// Made and destroyed by one thread, which lives as long as the process; wait() may be called by any
// one thread at a time.
class RankBarrier {
 public:
  RankBarrier(SharedRegion&, const RankPlace&);
  RankBarrier(const RankBarrier&) = delete;
  ~RankBarrier();
  void wait();
  void busy(bool now) { region_.rank(place_.rank).busy = now ? 1 : 0; }

 private:
  bool missing(int peer) const;  // hasn't come to the barrier that this rank waits in
  void look_around();            // doesn't return where something is wrong
  [[noreturn]] void end_for_dead(int peer, const char* what);
  [[noreturn]] void end_for_stuck(int peer);

  SharedRegion& region_;
  RankPlace place_;
};

}  // namespace bv
