// A thread that ends this process when a peer has died or is stuck while this rank waits for the
// device. On a GPU a collective whose peer is gone waits for ever, and aborting it from outside is
// not safe while a captured graph holds it: so the process writes why and leaves at once.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "kernels/comm/rank_barrier.h"

namespace bv {

class PeerWatch {
 public:
  // `broken` is asked now and then whether the communication has failed by itself: why, or "".
  // `ends` is called before the process ends for what was seen here.
  PeerWatch(SharedRegion&, const RankPlace&, std::function<std::string()> broken,
            std::function<void()> ends);
  PeerWatch(const PeerWatch&) = delete;
  ~PeerWatch();

  // Around everything in which the host waits for the device, by one thread at a time.
  void wait_begins();
  void wait_ends();

 private:
  void run();
  void look(double waited);
  [[noreturn]] void end(const std::string& why, bool a_peer_died);
  int stuck_peer() const;  // -1: none can be told from the others

  SharedRegion& region_;
  RankPlace place_;
  std::function<std::string()> broken_;
  std::function<void()> ends_;
  std::atomic<uint64_t> waiting_{0};  // even: not; odd: in a wait
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace bv
