// Every operation on every device against the oracles: KernelTable/DEVICE.CASE. What is judged of
// each case: results, untouched inputs, no write outside, and the same bits in a second run in
// which outputs and workspace held something else; on the stand-in, in which a block's threads ran in
// another order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ranges>

#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

constexpr unsigned char nan_poison = 0xFF, finite_poison = 0x40;  // 0x40: about 3 in fp32

class KernelTest : public testing::Test {
 public:
  KernelTest(Device device, KernelCase kernel_case, DType dtype)
      : device_(std::move(device)), case_(std::move(kernel_case)), dtype_(dtype) {}

  void TestBody() override {
    if (!device_.unavailable.empty()) GTEST_SKIP() << device_.unavailable;
    const Problem problem = case_.make(dtype_);
    const std::vector<Run> all = runs();
    const Outcome first = run(problem, all.front(), true);
    for (const Run& other : all | std::views::drop(1)) {
      const Outcome outcome = run(problem, other);
      if (other.same_bits || problem.any_threads) expect_same(problem, first, outcome, other);
    }
    RecordProperty("worst_ratio", std::to_string(first.worst_ratio));
  }

  void TearDown() override {
    if (HasFailure())
      std::printf("rerun with:  make test FILTER=%s.%s\n", device_.name.c_str(),
                  case_.name.c_str());
  }

 private:
  struct Run {
    std::string name;
    int threads;  // of the host; 0: as it is
    unsigned char poison;
    bool same_bits;  // as the first run
    std::function<void()> set;
  };

  // Every device with two poisons; the CPU also with one thread; the stand-in in all its orders.
  std::vector<Run> runs() const {
    const auto nothing = [] {};
    if (device_.host_threads)
      return {{"", 2, nan_poison, true, nothing},
              {"second run: ", 2, finite_poison, true, nothing},
              {"one thread: ", 1, nan_poison, false, nothing}};
    std::vector<Run> list;
    for (const Device::Variant& variant : device_.variants)
      list.push_back(
          {variant.name, 0, list.size() == 1 ? finite_poison : nan_poison, true, variant.set});
    if (list.empty())
      list = {{"", 0, nan_poison, true, nothing},
              {"second run: ", 0, finite_poison, true, nothing}};
    return list;
  }

  Outcome run(const Problem& problem, const Run& how, bool with_mistakes = false) {
    how.set();
    Outcome outcome = execute(problem, device_, how.threads, how.poison, with_mistakes);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << how.name << failure;
    return outcome;
  }

  static void expect_same(const Problem& problem, const Outcome& a, const Outcome& b,
                          const Run& how) {
    size_t output = 0;
    for (const Argument& argument : problem.arguments) {
      if (!argument.is_output()) continue;
      EXPECT_TRUE(a.outputs[output] == b.outputs[output])
          << how.name << argument.name << " has other bits than in the first run";
      ++output;
    }
  }

  Device device_;
  KernelCase case_;
  DType dtype_;
};

const char* suffix(DType dtype) {
  return dtype == DType::fp32 ? "" : dtype == DType::fp16 ? "_fp16" : "_bf16";
}

void add_test(const Device& device, KernelCase kernel_case, DType dtype) {
  kernel_case.name += suffix(dtype);
  testing::RegisterTest(
      ("KernelTable/" + device.name).c_str(), kernel_case.name.c_str(), nullptr, nullptr, __FILE__,
      __LINE__, [=]() -> KernelTest* { return new KernelTest(device, kernel_case, dtype); });
}

// For tools that slow everything down (compute-sanitizer): a case whose sizes, the numbers in its
// name, multiply to little.
bool is_small(const std::string& name) {
  double product = 1, number = 0;
  for (const char c : name + '_')
    if (c >= '0' && c <= '9')
      number = 10 * number + (c - '0');
    else
      product *= std::max(number, 1.0), number = 0;
  return product <= 1 << 16;
}

// BAREVISION_TEST_ALL: the large sweep too. BAREVISION_TEST_SMALL: small shapes only.
bool add_tests() {
  const bool all = std::getenv("BAREVISION_TEST_ALL"),
             small_only = std::getenv("BAREVISION_TEST_SMALL");
  for (const Device& device : devices_to_test()) {
    if (!device.unavailable.empty()) {
      add_test(device, {"every_operation", {}}, DType::fp32);
      continue;
    }
    for (const auto cases : {input_cases, linear_cases, gelu_layernorm_cases, attention_cases,
                             conv_cases, batchnorm_cases, pool_cases, loss_cases, optimizer_cases})
      for (const KernelCase& c : cases()) {
        if ((c.cpu_only && !device.host_threads) || (c.test_all && !all) ||
            (small_only && !is_small(c.name)))
          continue;
        for (const DType dtype : device.dtypes) add_test(device, c, dtype);
      }
  }
  return true;
}

// GoogleTest registers before main, as its own macros do.
[[maybe_unused]] const bool added = add_tests();

}  // namespace
}  // namespace bv::test
