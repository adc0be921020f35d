// Sums over processes in one order, in fp32 and in 16 bits, and the bytes that they send.
#include "engine/training/ordered_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/devices/devices.h"
#include "tests/comm/processes.h"
#include "tests/comm/workers.h"

namespace bv::test {
namespace {

// Counts the bytes that this rank sends.
class Counting final : public Communicator {
 public:
  explicit Counting(Communicator& to) : Communicator(to.rank(), to.size()), to_(to) {}
  size_t sent = 0;
  void exchange(std::span<const Transfer> transfers, Stream stream) override {
    for (const Transfer& t : transfers) sent += t.send ? t.bytes : 0;
    to_.exchange(transfers, stream);
  }
  void all_reduce(float*, size_t, Stream) override { refuse(); }
  void all_reduce(double*, size_t, Stream) override { refuse(); }
  void all_gather(float*, size_t, Stream) override { refuse(); }
  void broadcast(void*, size_t, int, Stream) override { refuse(); }
  void reduce_scatter(float*, size_t, Stream) override { refuse(); }
  std::unique_ptr<Communicator> group(std::span<const int>) override { return refuse(), nullptr; }
  void barrier() override { refuse(); }
  void busy(Busy) override {}

 private:
  static void refuse() { throw std::logic_error("not by an exchange"); }
  Communicator& to_;
};

float rounded(float x, DType dtype) {
  if (dtype == DType::fp32) return x;
  if (dtype == DType::fp16) return static_cast<float>(static_cast<_Float16>(x));
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

float element(int rank, size_t i) {
  return std::ldexp(std::sin(static_cast<float>(1 + i * 31 + static_cast<size_t>(rank) * 7919)),
                    static_cast<int>(i % 7) - 3);
}

float tree(int begin, int ranks, size_t i, DType dtype) {
  if (ranks == 1) return rounded(element(begin, i), dtype);
  int half = 1;
  while (2 * half < ranks) half *= 2;
  return tree(begin, half, i, dtype) + tree(begin + half, ranks - half, i, dtype);
}

bool sums(Communicator& peers, Backend& backend, DType dtype, size_t count) {
  Counting counting(peers);
  OrderedSum sum(backend, counting, count, dtype);
  sum.allocate();
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = element(peers.rank(), i);
  const DeviceMemory memory(backend, count * sizeof(float));
  backend.to_device(memory.data(), data.data(), count * sizeof(float), nullptr);
  sum.all_reduce(memory.data<float>(), count, nullptr);
  backend.to_host(data.data(), memory.data(), count * sizeof(float), nullptr);
  backend.synchronize(nullptr);
  for (size_t i = 0; i < count; ++i)
    if (data[i] != rounded(tree(0, peers.size(), i, dtype), dtype)) return false;
  // Each rank sends all but its own share, then its share to every other rank.
  const auto ranks = static_cast<size_t>(peers.size());
  const size_t shares = 64 * ranks;
  return count % shares != 0 || counting.sent == 2 * (count - count / ranks) * size_of(dtype);
}

// OrderedSum in each dtype has the bits of SumParts and sends as many bytes as it documents.
int ordered_sum_has_one_order(Communicator& peers, Backend& backend, DeviceKind) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    if (!backend.converts(dtype)) continue;
    for (const size_t count : {1, 63, 64, 65, 1000, 12 * 64, 12 * 4096, 12293})
      if (!sums(peers, backend, dtype, count)) return 1 + static_cast<int>(dtype);
  }
  return 0;
}
[[maybe_unused]] const bool added = add_worker("ordered-sum", on_device<ordered_sum_has_one_order>);

class OrderedSums : public testing::TestWithParam<DeviceKind> {};

TEST_P(OrderedSums, HaveOneOrderAndHalfTheBytesIn16Bits) {
  if (!is_built(GetParam())) GTEST_SKIP() << "not built";
  const std::string device = GetParam() == DeviceKind::cpu ? "cpu" : "simt";
  for (const int ranks : {2, 3, 4}) {
    Child launcher([&] { return launch_workers(ranks, "ordered-sum " + device); });
    const Ending ending = launcher.wait();
    EXPECT_EQ(ending.code, 0) << ranks << ending.errors;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, OrderedSums, testing::Values(DeviceKind::cpu, DeviceKind::simt),
                         [](const auto& test) {
                           return test.param == DeviceKind::cpu ? "cpu" : "simt";
                         });

}  // namespace
}  // namespace bv::test
