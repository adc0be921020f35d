// A thread that ends this process if a peer dies or is stuck while this rank waits for the device:
// a GPU's collective never returns then, nor can it be aborted while a captured graph holds it.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "comm/local/rank_barrier.h"

namespace bv {

class PeerWatch {
 public:
  // `failure` is polled: returns why the communication has failed, or "".
  PeerWatch(SharedRegion&, const RankPlace&, std::function<std::string()> failure);
  ~PeerWatch();

  // Called around every wait of the host for the device, by one thread at a time.
  void wait_begins();
  void wait_ends();

 private:
  void run();
  void check_peers();
  [[noreturn]] void end(const std::string& why, bool a_peer_died, int culprit);
  int stuck_peer() const;  // -1: no rank stands out

  SharedRegion& region_;
  RankPlace place_;
  PeerTimeout patience_;
  std::function<std::string()> failure_;
  std::atomic<uint64_t> waiting_{0};  // odd during a wait
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace bv
