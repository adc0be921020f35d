// A TCP connection between every two ranks of a run, for their data.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/local/run_watch.h"
#include "comm/net/socket.h"
#include "kernels/cpu/stream.h"

namespace bv {

class Mesh {
 public:
  // sockets: by rank, empty for this one; non-blocking. run: watched while this rank waits.
  Mesh(int rank, std::vector<Socket> sockets, RunWatch& run, double timeout);
  Mesh(const Mesh&) = delete;
  ~Mesh();
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(sockets_.size()); }

  // Work that calls exchange() is submitted here, so that it runs in call order.
  StreamOrder& order() { return order_; }

  // Like Communicator::exchange; peers are ranks of the run. Returns when all is sent and received.
  // If a peer is gone or doesn't answer, ends the process.
  void exchange(std::span<const Transfer>);
  uint64_t bytes_sent(int peer) const { return sent_[size_t(peer)]; }

 private:
  struct Queue;
  void wait(std::span<Queue>);
  bool progress(Queue&);       // false: nothing could be sent or received
  void end_without(int peer);  // doesn't return; the peer is gone

  int rank_;
  std::vector<Socket> sockets_;
  RunWatch& run_;
  double timeout_;
  std::vector<uint64_t> sent_;  // bytes, by rank
  StreamOrder order_;
};

}  // namespace bv
