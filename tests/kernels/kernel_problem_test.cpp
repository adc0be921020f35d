// Tests of the kernel tests' own machinery, with planted bugs that it must find.
#include "tests/kernels/kernel_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/numerics/format.h"

namespace bv::test {
namespace {

using Bug = std::function<void(float* out, const float* inp, DeviceArguments&)>;

// out = 2 inp, computed correctly and then corrupted by `bug`.
Outcome run_with(const Bug& bug, unsigned char poison = 0xFF) {
  const Device device = devices_to_test().front();
  Problem p(DType::fp32);
  p.exact = true;
  const Values inp{1, 2, 3, 4, 5, 6};
  p.output("out", {2, 3}, exactly({2, 4, 6, 8, 10, 12}));
  p.input("inp", {2, 3}, inp);
  p.run = [&](Kernels&, DeviceArguments& a) {
    float *out = a.at<float>("out"), *in = a.at<float>("inp");
    for (int i = 0; i < 6; ++i) out[i] = 2 * in[i];
    bug(out, in, a);
  };
  return execute(p, device, 1, poison);
}

void expect_found(const Bug& bug, const std::string& sentence, unsigned char poison = 0xFF) {
  const Outcome outcome = run_with(bug, poison);
  ASSERT_EQ(outcome.failures.size(), 1u) << sentence;
  EXPECT_NE(outcome.failures[0].find(sentence), std::string::npos) << outcome.failures[0];
}

TEST(KernelProblem, ACorrectOperationPasses) {
  EXPECT_TRUE(run_with([](float*, const float*, DeviceArguments&) {}).failures.empty());
}

TEST(KernelProblem, FindsAWrongResult) {
  expect_found([](float* out, const float*, DeviceArguments&) { out[4] = 9; },
               "out: 1 of 6 elements differ; worst [1, 1]: 9 is not 10");
}

TEST(KernelProblem, FindsAnUnwrittenOutput) {
  const float poison = std::numeric_limits<float>::quiet_NaN();
  expect_found([=](float* out, const float*, DeviceArguments&) { out[5] = poison; },
               "worst [1, 2]: nan is not 12");
}

TEST(KernelProblem, FindsWritesOutside) {
  expect_found([](float* out, const float*, DeviceArguments&) { out[6] = 0; }, "wrote after out");
  expect_found([](float* out, const float*, DeviceArguments&) { out[-1] = 0; }, "wrote before out");
  // Adding to a NaN leaves a NaN, so a sentinel of NaN would miss the write.
  expect_found([](float* out, const float*, DeviceArguments&) { out[6] += 0.125f; },
               "wrote after out", 0x40);
  expect_found(
      [](float*, const float*, DeviceArguments& a) { static_cast<char*>(a.workspace(10))[10] = 0; },
      "wrote after workspace");
}

TEST(KernelProblem, FindsAChangedInput) {
  expect_found([](float*, const float* inp, DeviceArguments&) { const_cast<float*>(inp)[2] = 7; },
               "input inp was changed");
}

TEST(KernelProblem, ReadsOutsideAndOfTheWorkspaceAreNaN) {
  expect_found([](float* out, const float* inp, DeviceArguments&) { out[0] += 0 * inp[6]; },
               "nan is not 2");
  expect_found([](float* out, const float*,
                  DeviceArguments& a) { out[0] += 0 * *static_cast<const float*>(a.workspace(4)); },
               "nan is not 2");
}

TEST(KernelProblem, OutputsAreHandedOverForABitwiseComparison) {
  // A result that depends on what the workspace held before.
  const Bug bug = [](float* out, const float*, DeviceArguments& a) {
    if (*static_cast<const float*>(a.workspace(4)) > 1) out[0] = std::nextafter(2.0f, 3.0f);
  };
  EXPECT_NE(run_with(bug, 0x40).outputs, run_with(bug, 0xFF).outputs);
}

// ---- 16 bits ------------------------------------------------------------------------------------
// out = 300 inp + 1 on the host; `spoiled` is applied to each correct value before it is stored.
std::vector<std::string> failures_in_16_bits(DType dtype, bool exact,
                                             const std::function<double(double)>& spoiled) {
  const Device device = devices_to_test().front();
  Problem p(dtype);
  p.exact = exact;
  const Values inp = p.data(50);
  Tensor expected;
  for (const double x : inp) expected.push_back(Tracked(300) * Tracked(x) + Tracked(1));
  p.output("out", {50}, expected);
  p.input("inp", {50}, inp);
  p.run = [&](Kernels&, DeviceArguments& a) {
    Values out;
    for (const double x : decode(a.read("inp"), dtype))
      out.push_back(spoiled(float(float(300 * x) + 1)));
    const Bytes bytes = encode(out, dtype);
    std::copy(bytes.begin(), bytes.end(), a.at<std::byte>("out"));
  };
  return execute(p, device, 1, 0xFF).failures;
}

TEST(KernelProblem, In16BitsAResultIsRoundedOnce) {
  for (const DType dtype : {DType::fp16, DType::bf16})
    for (const bool exact : {false, true}) {
      const auto found = [&](const std::function<double(double)>& spoiled) {
        return !failures_in_16_bits(dtype, exact, spoiled).empty();
      };
      EXPECT_FALSE(found([](double x) { return x; }));
      EXPECT_TRUE(found([=](double x) { return x * (dtype == DType::fp16 ? 1.002 : 1.01); }));
      EXPECT_TRUE(found([=](double x) { return x - half_ulp(x, dtype); }));  // truncated
      EXPECT_TRUE(found([=](double x) { return x == 1 ? x : NAN; }));
      // bf16 in fp16's place or the other way round.
      EXPECT_TRUE(found([=](double x) {
        const DType other = dtype == DType::fp16 ? DType::bf16 : DType::fp16;
        return decode(encode({x}, other), dtype).at(0);
      }));
    }
}

TEST(KernelProblem, RefusesNumbersThatADeviceWouldRound) {
  Problem p(DType::bf16);
  EXPECT_THROW(p.input("inp", {1}, {1.001}), std::logic_error);
  EXPECT_NO_THROW(p.input("inp", {1}, p.held({1.001})));
  EXPECT_NO_THROW(p.input_fp32("weight", {1}, {float(1.001)}));
}

}  // namespace
}  // namespace bv::test
