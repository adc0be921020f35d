// Sums over the ranks in the order of SumParts, independent of the communicator's own order, in two
// phases: each rank receives its share of the elements from all ranks and adds these rows; then it
// sends the sum to all. Each rank sends as many bytes as in a ring, 2 (N - 1) / N of the message;
// in 16 bits half as many as in fp32.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/model/memory.h"
#include "kernels/backend.h"

namespace bv {

// A message is cut into shares of whole units, one per rank, in rank order; the last ranks' shares
// may be smaller or empty.
struct Shares {
  int ranks;
  size_t count, unit;  // elements of the message, and of a unit
  size_t each() const {
    const size_t all = unit * static_cast<size_t>(ranks);
    return (count + all - 1) / all * unit;
  }
  size_t begin(int rank) const { return std::min(count, each() * static_cast<size_t>(rank)); }
  size_t end(int rank) const { return begin(rank + 1); }
};

// Memory of which each rank sends one part to all others: rank r sends bytes [at[r], at[r + 1]).
struct Pieces {
  char* data;
  std::vector<size_t> at;  // [ranks + 1]
};
// The shares of a message as pieces.
Pieces pieces_of(void* message, DType, const Shares&);

class OrderedSum {
 public:
  // most: elements of the largest sum. dtype: of the messages. In 16 bits each rank's element is
  // rounded once, the elements are added in fp32, and the sum is rounded once. unit: of the shares.
  OrderedSum(Backend&, Communicator&, size_t most, DType dtype,
             size_t unit = OptimizerUpdate::decay_chunk);
  // Device memory that it needs.
  static size_t bytes(int ranks, size_t most, DType, size_t unit = OptimizerUpdate::decay_chunk);
  void allocate();

  // data = sum over the ranks; every rank ends with the same bits.
  void all_reduce(float* data, size_t count, Stream);
  // The same with messages in fp32, whatever the dtype.
  void all_reduce_exact(float* data, size_t count, Stream);
  // The first phase alone: this rank's share of data = its sum over the ranks, not rounded.
  void reduce_scatter(float* data, size_t count, Stream);
  // The second phase alone: sends each rank's pieces to all others, in one exchange.
  void all_gather(std::span<const Pieces>, Stream);

 private:
  Shares shares(size_t count) const { return {communicator_->size(), count, unit_}; }
  void round(float* data, size_t begin, size_t end, Stream);
  void add(void* message, DType, float* data, const Shares&, Stream);

  Backend* backend_;
  Communicator* communicator_;
  size_t most_, unit_;
  DType dtype_;
  DeviceMemory rows_;     // [ranks, share]: all ranks' elements of this rank's share
  DeviceMemory rounded_;  // [ranks * share]: all elements in 16 bits
};

}  // namespace bv
