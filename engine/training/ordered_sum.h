// Sums over the ranks in the order of SumParts, whatever the communicator's own, in two halves:
// each rank gets everyone's row of its share of the elements and adds them up; then it sends the
// sum to all. Per element and rank as many bytes as a ring, 2 (N - 1) / N of its size; in 16 bits
// half of those of fp32.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "engine/model/memory.h"
#include "kernels/backend.h"

namespace bv {

// A message is cut into shares of whole units, one per rank and in the order of ranks; the last
// ranks' may be smaller or empty.
struct Shares {
  int ranks;
  size_t count, unit;  // elements of the message, and of what isn't cut
  size_t each() const {
    const size_t all = unit * static_cast<size_t>(ranks);
    return (count + all - 1) / all * unit;
  }
  size_t begin(int rank) const { return std::min(count, each() * static_cast<size_t>(rank)); }
  size_t end(int rank) const { return begin(rank + 1); }
};

// Memory of which each rank sends a part to all: rank r bytes [at[r], at[r + 1]).
struct Pieces {
  char* data;
  std::vector<size_t> at;  // [ranks + 1]
};
// The shares of a message.
Pieces pieces_of(void* message, DType, const Shares&);

class OrderedSum {
 public:
  // most: elements of the largest sum. dtype: in which elements travel. In 16 bits each rank's
  // element is rounded once, and so is the sum, which is made in fp32. unit: of the shares.
  OrderedSum(Backend&, Communicator&, size_t most, DType dtype,
             size_t unit = OptimizerUpdate::decay_chunk);
  // It takes this much device memory.
  static size_t bytes(int ranks, size_t most, DType, size_t unit = OptimizerUpdate::decay_chunk);
  void allocate();

  // data = sum over the ranks; every rank ends with the same bits.
  void all_reduce(float* data, size_t count, Stream);
  // The same in fp32.
  void all_reduce_exact(float* data, size_t count, Stream);
  // The first half alone: this rank's share of data = its sum over the ranks, which is not rounded.
  void reduce_scatter(float* data, size_t count, Stream);
  // The second half alone: each rank's pieces to all, in one exchange.
  void all_gather(std::span<const Pieces>, Stream);

 private:
  Shares shares(size_t count) const { return {communicator_->size(), count, unit_}; }
  void round(float* data, size_t begin, size_t end, Stream);
  void add(void* message, DType, float* data, const Shares&, Stream);

  Backend* backend_;
  Communicator* communicator_;
  size_t most_, unit_;
  DType dtype_;
  DeviceMemory rows_;     // [ranks, share]: of this rank's share
  DeviceMemory rounded_;  // [ranks * share] in 16 bits: of all elements
};

}  // namespace bv
