// Every operation on every device against the oracles: KernelTable/DEVICE.CASE. What is judged of
// each case: results, untouched inputs, no write outside, and the same bits in a second run in
// which outputs and workspace held something else.
#include <gtest/gtest.h>

#include "tests/kernel_cases.h"

namespace bv {
namespace {

constexpr unsigned char nan_poison = 0xFF, finite_poison = 0x40;  // 0x40: about 3 in fp32

class KernelTest : public testing::Test {
 public:
  KernelTest(Device device, KernelCase kernel_case, DType dtype)
      : device_(std::move(device)), case_(std::move(kernel_case)), dtype_(dtype) {}

  void TestBody() override {
    if (!device_.unavailable.empty()) GTEST_SKIP() << device_.unavailable;
    const Problem problem = case_.make(dtype_);
    const int threads = device_.host_threads ? 2 : 0;
    const Outcome first = run(problem, threads, nan_poison, "");
    expect_same(problem, first, run(problem, threads, finite_poison, "second run: "),
                "two runs give different bits");
    if (device_.host_threads) {
      const Outcome alone = run(problem, 1, nan_poison, "one thread: ");
      if (problem.any_threads)
        expect_same(problem, first, alone, "one thread and two give different bits");
    }
    RecordProperty("worst_ratio", std::to_string(first.worst_ratio));
    if (HasFailure())
      std::printf("rerun with:  make test FILTER=%s.%s\n", device_.name.c_str(),
                  case_.name.c_str());
  }

 private:
  Outcome run(const Problem& problem, int threads, unsigned char poison, const char* which) {
    Outcome outcome = execute(problem, device_, threads, poison);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << which << failure;
    return outcome;
  }

  static void expect_same(const Problem& problem, const Outcome& a, const Outcome& b,
                          const char* otherwise) {
    size_t output = 0;
    for (const Argument& argument : problem.arguments) {
      if (!argument.is_output()) continue;
      EXPECT_TRUE(a.outputs[output] == b.outputs[output]) << argument.name << ": " << otherwise;
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

bool add_tests() {
  for (const Device& device : devices_to_test()) {
    if (!device.unavailable.empty()) {
      add_test(device, {"every_operation", {}}, DType::fp32);
      continue;
    }
    for (const auto cases : {input_cases, linear_cases, gelu_layernorm_cases, attention_cases,
                             loss_cases, optimizer_cases})
      for (const KernelCase& c : cases())
        for (const DType dtype : device.dtypes) add_test(device, c, dtype);
  }
  return true;
}

// GoogleTest registers before main, as its own macros do.
[[maybe_unused]] const bool added = add_tests();

}  // namespace
}  // namespace bv
