// Merging by the block that finishes last (kernels/cuda/last_block.cuh): any number of parts, in
// any order of blocks; afterwards the counters are zeros again.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/moments.cuh"
#include "kernels/cuda/norm_sums.cuh"
#include "tests/simt/simt_device.h"

namespace bv::simt_gpu {
namespace {

constexpr int threads = 64, columns = 32;
constexpr int few_threads = 24;  // fewer than columns

// Block (part, stripe) writes its part of `given`.
template <class Kind, int width>
__global__ void leave_and_merge(Kind kind, RowParts parts, const float* given) {
  using Last = LastBlock<Kind, threads, columns, width>;
  auto& s = shared<typename Last::Shared>();
  const int stretch = static_cast<int>(blockIdx.y) * columns;
  const auto channel = [&](int c) { return stretch + c < parts.C ? stretch + c : -1; };
  const size_t part = size_t{blockIdx.x} * 2 * parts.C;
  for (unsigned i = threadIdx.x; i < columns; i += blockDim.x)
    for (const int which : {0, 1})
      if (const int c = channel(static_cast<int>(i)); c >= 0)
        parts.partial[part + which * parts.C + c] = given[part + which * parts.C + c];
  Last::run(kind, parts, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), channel, s);
}

struct Case {
  int parts, group, C;
};
// Numbers of parts around one group, and around as many groups as a group has parts.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int parts : {1, 3, 4, 5, 8, 9, 16, 17, 64, 65}) {
    all.push_back({parts, 4, 8});
    all.push_back({parts, 8, 44});  // the second stripe has 12 columns
    all.push_back({parts, 64, 4});
  }
  return all;
}

template <int width, class Kind>
void run_twice(const Kind& kind, const Case& c, const std::vector<float>& given) {
  const int stretches = ceil_div(c.C, columns);
  RowParts parts{
      .partial = nullptr, .arrived = nullptr, .count = c.parts, .C = c.C, .group = c.group};
  std::vector<unsigned> arrived(size_t(stretches) * (1 + parts.groups()));
  for (int run_number = 0; run_number < 2; ++run_number) {
    std::vector<float> partial(given.size(), NAN);
    parts.partial = partial.data(), parts.arrived = arrived.data();
    run<leave_and_merge<Kind, width>>(
        dim3(c.parts, stretches), width == 4 && c.parts % 2 ? few_threads : threads,
        sizeof(typename LastBlock<Kind, threads, columns, width>::Shared), kind, parts,
        given.data());
    EXPECT_EQ(std::ranges::count(arrived, 0u), ptrdiff_t(arrived.size()));
  }
}

class SimtLastBlock : public SimtDevice {};

template <int width>
void sums_of(const Case& c, bool accumulate) {
  const size_t C = size_t(c.C);
  std::vector<float> given(2 * C * c.parts), want(2 * C);
  for (size_t i = 0; i < given.size(); ++i) given[i] = float(i * 7 % 31) - 12;
  for (size_t i = 0; i < given.size(); ++i) want[i % (2 * C)] += given[i];
  std::vector<float> sums(2 * C, NAN), dweight(C, 3), dbias(C, 5);
  run_twice<width>(NormSums{sums.data(), dweight.data(), dbias.data(), c.C, accumulate}, c, given);
  EXPECT_EQ(sums, want);
  for (size_t i = 0; i < C; ++i) {
    EXPECT_EQ(dbias[i], accumulate ? 5 + 2 * want[i] : want[i]);
    EXPECT_EQ(dweight[i], accumulate ? 3 + 2 * want[C + i] : want[C + i]);
  }
}

TEST_F(SimtLastBlock, AddsAllParts) {
  for (const Case& c : cases())
    in_each_order([&] {
      SCOPED_TRACE(std::to_string(c.parts) + " parts by " + std::to_string(c.group));
      sums_of<4>(c, c.parts % 2), sums_of<1>(c, c.parts % 2);
    });
}

// The same bits in every order of blocks, and the values computed in double.
TEST_F(SimtLastBlock, MergesMoments) {
  constexpr int rows_of_part = 10;
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::to_string(c.parts) + " parts by " + std::to_string(c.group));
    const size_t C = size_t(c.C);
    const int rows = c.parts * rows_of_part - 3;  // the last part has 7
    std::vector<float> given(2 * C * c.parts), first;
    std::vector<double> mean(C), square(C);
    for (int part = 0; part < c.parts; ++part)
      for (size_t i = 0; i < C; ++i) {
        const int n = part + 1 < c.parts ? rows_of_part : rows_of_part - 3;
        const float m = 100 + std::sin(float(part * 10 + int(i))), m2 = float(i + part % 5);
        given[part * 2 * C + i] = m, given[(part * 2 + 1) * C + i] = m2;
        mean[i] += n * double(m) / rows, square[i] += (m2 + n * double(m) * m) / rows;
      }
    in_each_order([&] {
      std::vector<float> moments(2 * C, NAN);
      run_twice<4>(MergeMoments{moments.data(), rows_of_part, rows, c.C}, c, given);
      for (size_t i = 0; i < C; ++i) {
        EXPECT_NEAR(moments[i], mean[i], 1e-4);
        EXPECT_NEAR(moments[C + i], square[i] - mean[i] * mean[i], 1e-4);
      }
      if (first.empty()) first = moments;
      EXPECT_EQ(moments, first);
    });
  }
}

TEST_F(SimtLastBlock, GroupsAreAboutAsManyAsTheirParts) {
  const auto groups = [](int count, int stretches) {
    const RowParts p = row_parts(DeviceProps{}, nullptr, count, 64, stretches);
    return std::pair(p.group, p.groups());
  };
  EXPECT_EQ(groups(1, 1), std::pair(128, 1));
  EXPECT_EQ(groups(128, 1), std::pair(128, 1));
  EXPECT_EQ(groups(129, 1), std::pair(128, 2));
  EXPECT_EQ(groups(128 * 128, 1), std::pair(128, 128));
  EXPECT_EQ(groups(128 * 128 + 1, 1), std::pair(256, 65));
  EXPECT_EQ(groups(1 << 24, 1), std::pair(4096, 4096));
  // The groups need no more counters than there are.
  EXPECT_EQ(groups(128 * 128, 508), std::pair(128, 128));
  EXPECT_EQ(groups(128 * 128, 509), std::pair(256, 64));
  EXPECT_EQ(groups(128 * 128, 32768), std::pair(16384, 1));
  EXPECT_THROW(groups(1, 32769), std::invalid_argument);
}

}  // namespace
}  // namespace bv::simt_gpu
