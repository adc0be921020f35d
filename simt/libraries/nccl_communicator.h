// One rank of a communicator. An all-reduce runs in chunks: every rank copies its part into shared
// memory, waits for all ranks, sums all parts in the same order, and waits for all ranks again, so
// all of them get the same bits. A message passes through a ring buffer, one per sender and
// receiver, once the receive has been posted.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "simt/libraries/nccl_job.h"
#include "simt/libraries/nccl_operation.h"

namespace simt::nccl {

constexpr size_t chunk_bytes = 1 << 18, pipe_bytes = 1 << 16;

// Messages from one rank to another.
struct alignas(64) Pipe {
  std::atomic<uint64_t> posted;         // number of receives begun
  std::atomic<uint64_t> expected;       // bytes of the receive that was posted last
  std::atomic<uint64_t> written, read;  // bytes
  std::atomic<uint64_t> sent;           // number of messages
  unsigned char ring[pipe_bytes];
};

// The state of a communicator's rank that the other ranks read.
struct alignas(64) Member {
  std::atomic<uint64_t> arrivals;  // at barriers
  char calls[2][64];               // its last two collectives, which must be the same on all ranks
  int color, key;                  // of its ncclCommSplit
  uint64_t offset;                 // the new communicator's, if this rank leads it
  int communicator;
};

// A fault that SIMT_NCCL_FAULT plants.
struct Fault {
  bool dies = false, hangs = false, is_slow = false;
  int rank = -1;
  uint64_t operation = 0;
};

}  // namespace simt::nccl

inline namespace simt_cuda {

struct SimtNcclComm {
  // `members`: the job's ranks, by rank of this communicator.
  SimtNcclComm(std::shared_ptr<simt::nccl::Job>, int id, size_t offset, std::vector<int> members,
               int rank);
  static size_t bytes(int size);
  // Called by all ranks of this communicator; returns null if color is NCCL_SPLIT_NOCOLOR.
  std::unique_ptr<SimtNcclComm> split(int color, int key);

  template <class T>
  simt::nccl::Part all_reduce(const T* send, T* receive, size_t count);
  simt::nccl::Part reduce_scatter(const float* send, float* receive, size_t count);
  simt::nccl::Part all_gather(const float* send, float* receive, size_t count);
  simt::nccl::Part broadcast(const unsigned char* send, unsigned char* receive, size_t bytes,
                             int root);
  simt::nccl::Part send(const unsigned char* data, size_t bytes, int peer);
  simt::nccl::Part receive(unsigned char* data, size_t bytes, int peer);

  void begin_operation();
  void fail_as_planted() const;
  // Blocks the host until all ranks have arrived. `name`: of the NCCL call, for messages.
  void barrier(const char* name);
  simt::nccl::Wait wait_of(const std::string& what, uint64_t operation,
                           const simt::nccl::Until&) const;
  // Adds to bytes_sent the bytes this rank sends to the next one in a ring.
  void count_to_next(size_t bytes);

  const std::shared_ptr<simt::nccl::Job> job;
  const int id;  // in the job
  const std::vector<int> members;
  const int rank, size;
  std::deque<simt::nccl::Operation*> queue;
  uint64_t operations = 0;
  const simt::nccl::Fault fault;
  bool has_buffers = false;
  // Each captured collective holds a copy: use_count() - 1 of them are in graphs.
  std::shared_ptr<SimtNcclComm> in_graphs{this, [](SimtNcclComm*) {}};

 private:
  std::vector<simt::nccl::Until> arrive();
  // Announces a collective, which the other ranks must make, too.
  void say(const std::string& call);
  void require_the_same() const;
  simt::nccl::Pipe& pipe(int from, int to) const;
  unsigned char* part(int of) const;
  template <class T>
  void sum_parts(T* out, size_t n, size_t begin) const;

  const size_t offset_;
  simt::nccl::Mapping mapping_;
  simt::nccl::Member* const all_;  // [size], then pipes [size, size], then parts [size]
  uint64_t arrivals_ = 0, collectives_ = 0;
  std::vector<uint64_t> sends_, receives_;  // number begun, by peer
  const int first_;                         // the rank that sums begin with
};

}  // namespace simt_cuda
