// A sum over the ranks in the order of SumParts, whatever the communicator's own: each rank gets
// everyone's row of its share of the elements, adds them up, and sends the sum to all. Per element
// and rank as many bytes as a ring, 2 (N - 1) / N of its size; in 16 bits half of those of fp32.
#pragma once
#include <cstddef>

#include "comm/communicator.h"
#include "engine/model/memory.h"
#include "kernels/backend.h"

namespace bv {

class OrderedSum {
 public:
  // most: elements of the largest sum. dtype: in which elements travel. In 16 bits each rank's
  // element is rounded once, and so is the sum, which is made in fp32.
  OrderedSum(Backend&, Communicator&, size_t most, DType dtype);
  static size_t bytes(int ranks, size_t most, DType);  // of device memory
  void allocate();

  // data = sum over the ranks; every rank ends with the same bits.
  void all_reduce(float* data, size_t count, Stream);
  // The same in fp32.
  void all_reduce_exact(float* data, size_t count, Stream);

 private:
  // The elements that each rank sums; the last ranks' shares may be smaller or empty.
  static size_t share(int ranks, size_t count);
  void sum(void* message, DType, float* data, size_t count, Stream);

  Backend* backend_;
  Communicator* communicator_;
  size_t most_;
  DType dtype_;
  DeviceMemory rows_;     // [ranks, share]: of this rank's share
  DeviceMemory rounded_;  // [ranks * share] in 16 bits: of all elements
};

}  // namespace bv
