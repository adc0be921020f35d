// Collectives between the processes of a run, on device or host memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/types.h"

namespace bv {

// Why a rank may answer its peers later than usual.
enum class Busy : uint32_t { no, starting, saving };

// flat: over all ranks at once. two_level: inside each node, between the nodes, then inside again.
enum class AllReduce : uint8_t { flat, two_level };

// One message between two ranks of a communicator.
struct Transfer {
  void* data;
  size_t bytes;
  int peer;
  bool send;  // otherwise it is received
};

// Collectives over all processes of a run, or over a group of them. Every rank makes the same calls
// in the same order with the same counts, and ends with the same bits, whatever the timing.
class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual void all_reduce(float* data, size_t count, Stream) = 0;  // data = sum over the ranks
  virtual void all_reduce(double* data, size_t count, Stream) = 0;
  // data [size, count]: each rank has filled its own row and receives the others.
  virtual void all_gather(float* data, size_t count, Stream) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, Stream) = 0;
  // data [size, count]: each rank ends with the sum over the ranks of its own row; the other rows
  // are undefined afterwards.
  virtual void reduce_scatter(float* data, size_t count, Stream) = 0;
  // Runs all transfers concurrently: none waits for another of the same call. Between two ranks,
  // the n-th send matches the n-th receive. Ranks with nothing to send or receive need not call it.
  virtual void exchange(std::span<const Transfer>, Stream) = 0;
  // Collective: every rank passes the list of its own group's ranks, and each rank is in one group.
  // The group numbers its ranks in the order of the list. Only the group's own ranks must make its
  // calls in the same order. The group must not outlive this communicator.
  virtual std::unique_ptr<Communicator> group(std::span<const int> ranks) = 0;
  virtual void barrier() = 0;  // host barrier
  // Sums one host value per rank.
  virtual double all_reduce_scalar(double x) {
    all_reduce(&x, 1, nullptr);
    return x;
  }
  // True: all calls, including its groups', run in call order, whatever their streams. False: calls
  // of different communicators (this one, its groups) run concurrently on different streams.
  virtual bool in_call_order() const { return false; }
  // While busy, this process may keep its peers waiting for ten times their timeout.
  virtual void busy(Busy) = 0;
  // A line for the user, or empty.
  virtual std::string note() const { return ""; }
  // The failure the communicator has detected, or empty. Thread-safe.
  virtual std::string failure() const { return ""; }
  // Tells the peers of a run on several machines why this process is about to end the run.
  virtual void end_run(const std::string& /*why*/) {}

 private:
  int rank_, size_;
};

}  // namespace bv
