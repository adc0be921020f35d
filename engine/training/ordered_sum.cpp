#include "engine/training/ordered_sum.h"

#include <array>
#include <vector>

namespace bv {

Pieces pieces_of(void* message, DType dtype, const Shares& shares) {
  Pieces pieces{static_cast<char*>(message), {}};
  for (int rank = 0; rank <= shares.ranks; ++rank)
    pieces.at.push_back(shares.begin(rank) * size_of(dtype));
  return pieces;
}

OrderedSum::OrderedSum(Backend& backend, Communicator& communicator, size_t most, DType dtype,
                       size_t unit)
    : backend_(&backend), communicator_(&communicator), most_(most), unit_(unit), dtype_(dtype) {}

size_t OrderedSum::bytes(int ranks, size_t most, DType dtype, size_t unit) {
  const size_t elements = Shares{ranks, most, unit}.each() * static_cast<size_t>(ranks);
  return elements * (sizeof(float) + (dtype == DType::fp32 ? 0 : size_of(dtype)));
}

void OrderedSum::allocate() {
  const size_t elements = shares(most_).each() * static_cast<size_t>(communicator_->size());
  rows_ = DeviceMemory(*backend_, elements * sizeof(float));
  if (dtype_ != DType::fp32) rounded_ = DeviceMemory(*backend_, elements * size_of(dtype_));
}

// Rounds elements [begin, end) into rounded_, to be sent.
void OrderedSum::round(float* data, size_t begin, size_t end, Stream stream) {
  if (end > begin)
    backend_->kernels().run(RoundWeights{.out = rounded_.data() + begin * size_of(dtype_),
                                         .inp = data + begin,
                                         .count = end - begin,
                                         .dtype = dtype_},
                            stream);
}

void OrderedSum::all_reduce_exact(float* data, size_t count, Stream stream) {
  add(data, DType::fp32, data, shares(count), stream);
  all_gather(std::array{pieces_of(data, DType::fp32, shares(count))}, stream);
}

void OrderedSum::all_reduce(float* data, size_t count, Stream stream) {
  if (dtype_ == DType::fp32) return all_reduce_exact(data, count, stream);
  const int own = communicator_->rank();
  reduce_scatter(data, count, stream);
  round(data, shares(count).begin(own), shares(count).end(own), stream);
  all_gather(std::array{pieces_of(rounded_.data(), dtype_, shares(count))}, stream);
  backend_->kernels().run(SumParts{.out = data,
                                   .inp = rounded_.data(),
                                   .count = count,
                                   .factor = 1,
                                   .parts = 1,
                                   .dtype = dtype_},
                          stream);
}

void OrderedSum::reduce_scatter(float* data, size_t count, Stream stream) {
  if (dtype_ == DType::fp32) return add(data, DType::fp32, data, shares(count), stream);
  round(data, 0, count, stream);
  add(rounded_.data(), dtype_, data, shares(count), stream);
}

// message: this rank's `count` elements in `dtype`. data: the same elements in fp32; this rank's
// share is overwritten by the sum.
void OrderedSum::add(void* message, DType dtype, float* data, const Shares& shares, Stream stream) {
  const int own = communicator_->rank();
  const size_t size = size_of(dtype), begin = shares.begin(own), length = shares.end(own) - begin;
  const auto at = [&](int rank) { return static_cast<char*>(message) + shares.begin(rank) * size; };
  const auto row = [&](int rank) {
    return rows_.data() + shares.each() * size * static_cast<size_t>(rank);
  };
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < shares.ranks; ++rank) {
    if (rank == own) continue;
    const size_t theirs = shares.end(rank) - shares.begin(rank);
    if (theirs) transfers.push_back({at(rank), theirs * size, rank, true});
    if (length) transfers.push_back({row(rank), length * size, rank, false});
  }
  communicator_->exchange(transfers, stream);
  if (!length) return;
  backend_->copy(row(own), at(own), length * size, stream);
  backend_->kernels().run(SumParts{.out = data + begin,
                                   .inp = rows_.data(),
                                   .count = length,
                                   .stride = shares.each(),
                                   .factor = 1,
                                   .parts = shares.ranks,
                                   .dtype = dtype},
                          stream);
}

void OrderedSum::all_gather(std::span<const Pieces> pieces, Stream stream) {
  const int own = communicator_->rank();
  std::vector<Transfer> transfers;
  const auto transfer = [&](const Pieces& p, int of, int peer, bool send) {
    const size_t begin = p.at[static_cast<size_t>(of)],
                 bytes = p.at[static_cast<size_t>(of) + 1] - begin;
    if (bytes) transfers.push_back({p.data + begin, bytes, peer, send});
  };
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    if (rank == own) continue;
    for (const Pieces& p : pieces) {
      transfer(p, own, rank, true);
      transfer(p, rank, rank, false);
    }
  }
  communicator_->exchange(transfers, stream);
}

}  // namespace bv
