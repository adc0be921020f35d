#include "engine/training/ordered_sum.h"

#include <algorithm>
#include <vector>

namespace bv {

OrderedSum::OrderedSum(Backend& backend, Communicator& communicator, size_t most, DType dtype)
    : backend_(&backend), communicator_(&communicator), most_(most), dtype_(dtype) {}

size_t OrderedSum::share(int ranks, size_t count) {
  constexpr size_t unit = OptimizerUpdate::decay_chunk;  // SumParts' rows
  return (count + unit * static_cast<size_t>(ranks) - 1) / (unit * static_cast<size_t>(ranks)) *
         unit;
}

size_t OrderedSum::bytes(int ranks, size_t most, DType dtype) {
  const size_t elements = share(ranks, most) * static_cast<size_t>(ranks);
  return elements * (sizeof(float) + (dtype == DType::fp32 ? 0 : size_of(dtype)));
}

void OrderedSum::allocate() {
  const size_t elements =
      share(communicator_->size(), most_) * static_cast<size_t>(communicator_->size());
  rows_ = DeviceMemory(*backend_, elements * sizeof(float));
  if (dtype_ != DType::fp32) rounded_ = DeviceMemory(*backend_, elements * size_of(dtype_));
}

void OrderedSum::all_reduce_exact(float* data, size_t count, Stream stream) {
  sum(data, DType::fp32, data, count, stream);
}

void OrderedSum::all_reduce(float* data, size_t count, Stream stream) {
  if (dtype_ == DType::fp32) return all_reduce_exact(data, count, stream);
  Kernels& kernels = backend_->kernels();
  kernels.run(RoundWeights{.out = rounded_.data(), .inp = data, .count = count, .dtype = dtype_},
              stream);
  sum(rounded_.data(), dtype_, data, count, stream);
  kernels.run(SumParts{.out = data,
                       .inp = rounded_.data(),
                       .count = count,
                       .factor = 1,
                       .parts = 1,
                       .dtype = dtype_},
              stream);
}

// message: `count` elements in their dtype; data: of the same elements in fp32.
void OrderedSum::sum(void* message, DType dtype, float* data, size_t count, Stream stream) {
  const int ranks = communicator_->size(), own = communicator_->rank();
  const size_t each = share(ranks, count), size = size_of(dtype);
  const auto begin = [&](int rank) { return std::min(count, each * static_cast<size_t>(rank)); };
  const auto length = [&](int rank) { return begin(rank + 1) - begin(rank); };
  const auto at = [&](int rank) { return static_cast<char*>(message) + begin(rank) * size; };
  const auto row = [&](int rank) { return rows_.data() + each * size * static_cast<size_t>(rank); };
  std::vector<Transfer> transfers;
  const auto transfer = [&](void* what, int of, int peer, bool send) {
    if (length(of)) transfers.push_back({what, length(of) * size, peer, send});
  };

  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) continue;
    transfer(at(rank), rank, rank, true);
    transfer(row(rank), own, rank, false);
  }
  communicator_->exchange(transfers, stream);
  if (length(own)) {
    Kernels& kernels = backend_->kernels();
    backend_->copy(row(own), at(own), length(own) * size, stream);
    kernels.run(SumParts{.out = data + begin(own),
                         .inp = rows_.data(),
                         .count = length(own),
                         .stride = each,
                         .factor = 1,
                         .parts = ranks,
                         .dtype = dtype},
                stream);
    if (dtype != DType::fp32)
      kernels.run(
          RoundWeights{
              .out = at(own), .inp = data + begin(own), .count = length(own), .dtype = dtype},
          stream);
  }
  transfers.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == own) continue;
    transfer(at(own), own, rank, true);
    transfer(at(rank), rank, rank, false);
  }
  communicator_->exchange(transfers, stream);
}

}  // namespace bv
