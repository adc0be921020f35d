// Every operation on every device against the oracles: KernelTable/DEVICE.CASE. Each case checks
// that results are right, inputs unchanged and nothing else is written, and that a second run, with
// other initial contents of outputs and workspace and, on the stand-in, another order of a block's
// threads, gives the same bits; where threads meet, in further orders, too.
#include "tests/kernels/kernel_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ranges>

namespace bv::test {
namespace {

constexpr unsigned char nan_poison = 0xFF, finite_poison = 0x40;  // 0x40: about 3 in fp32

class KernelTest : public testing::Test {
 public:
  KernelTest(Device device, KernelCase kernel_case, DType dtype)
      : device_(std::move(device)), case_(std::move(kernel_case)), dtype_(dtype) {
    if (!device_.host_threads) share_kernels();
  }

  void TestBody() override {
    if (!device_.unavailable.empty()) GTEST_SKIP() << device_.unavailable;
    const Problem problem = case_.make(dtype_);
    const std::vector<Run> all = runs();
    const Outcome first = run(problem, all.front());
    for (const Run& other : all | std::views::drop(1)) {
      if (other.matters && !other.matters()) continue;
      const Outcome outcome = run(problem, other, &first);
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
    int threads;  // of the host; 0: unchanged
    unsigned char poison;
    bool same_bits;  // the same bits as in the first run
    std::function<void()> set;
    std::function<bool()> matters = {};
  };

  // All runs of a case on a GPU use one kernel table, so that a run fails if the previous one
  // didn't leave its block counters at zero.
  void share_kernels() {
    device_.make_kernels = [make = device_.make_kernels,
                            made = std::shared_ptr<Kernels>()]() mutable {
      if (!made) made = make();
      return made;
    };
  }

  // Every device runs with two poisons, the CPU also with one thread, the stand-in in two or more
  // orders.
  std::vector<Run> runs() const {
    const auto nothing = [] {};
    if (device_.host_threads)
      return {{"", 2, nan_poison, true, nothing},
              {"second run: ", 2, finite_poison, true, nothing},
              {"one thread: ", 1, nan_poison, false, nothing}};
    std::vector<Run> list;
    for (const Device::Variant& variant : device_.variants)
      list.push_back({variant.name, 0, nan_poison, true, variant.set, variant.matters});
    if (!list.empty()) list.back().poison = finite_poison;
    if (list.empty())
      list = {{"", 0, nan_poison, true, nothing},
              {"second run: ", 0, finite_poison, true, nothing}};
    return list;
  }

  Outcome run(const Problem& problem, const Run& how, const Outcome* first = nullptr) {
    how.set();
    const Outcome outcome = first ? execute_again(problem, device_, how.threads, how.poison, *first)
                                  : execute(problem, device_, how.threads, how.poison, true);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << how.name << failure;
    return outcome;
  }

  static void expect_same(const Problem& problem, const Outcome& a, const Outcome& b,
                          const Run& how) {
    size_t output = 0;
    for (const Argument& argument : problem.arguments) {
      if (!argument.is_output()) continue;
      EXPECT_TRUE(is_same(a.outputs[output], b.outputs[output]))
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

}  // namespace

double work_of(const std::string& name) {
  double product = 1, number = 0;
  for (const char c : name + '_')
    if (c >= '0' && c <= '9')
      number = 10 * number + (c - '0');
    else
      product *= std::max(number, 1.0), number = 0;
  return product;
}

bool is_case_of(const std::vector<std::string>& operations, const std::string& name) {
  return std::ranges::any_of(operations, [&](const std::string& operation) {
    std::string words;
    for (const char c : operation)
      words += (c < 'a' && !words.empty() ? "_" : "") + std::string(1, char(std::tolower(c)));
    return name.starts_with(words + "_");
  });
}

std::vector<KernelCase>& registered_cases() {
  static std::vector<KernelCase> cases;
  return cases;
}

// BAREVISION_TEST_ALL: also the sweeps, and large shapes in the slow plain kernels, on another chip
// of the stand-in, and in the CPU's bf16 and the stand-in's fp16, which load, store and multiply as
// they do in small shapes (the stand-in's bf16 runs the same kernels in all shapes).
// BAREVISION_TEST_SMALL: only small shapes.
bool add_cases(KernelCases cases) {
  const bool all = std::getenv("BAREVISION_TEST_ALL"),
             small_only = std::getenv("BAREVISION_TEST_SMALL");
  if (!all) cases.resize(cases.usual());
  registered_cases().insert(registered_cases().end(), cases.begin(),
                            cases.begin() + ptrdiff_t(cases.usual()));
  for (const Device& device : devices_to_test())
    for (const KernelCase& c : cases) {
      const double work = work_of(c.name);
      const bool small = work <= (device.plain ? 1 << 14 : 1 << 16);
      const bool slow = device.plain ? !small : !device.chip.empty() && work > 1 << 22;
      if (!device.unavailable.empty() || (c.cpu_only && !device.host_threads) ||
          (device.operations && !is_case_of(*device.operations, c.name)) ||
          (small_only && !small) || (slow && !all && (device.plain || !c.always)))
        continue;
      for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
        if ((c.every_dtype || std::ranges::count(device.dtypes, dtype)) &&
            (dtype == DType::fp32 || (dtype == DType::bf16 && !device.host_threads) ||
             device.is_a_gpu() || all || small))
          add_test(device, c, dtype);
    }
  return true;
}

namespace {

// Devices that can't run here are skipped by name.
[[maybe_unused]] const bool unavailable_named = [] {
  for (const Device& device : devices_to_test())
    if (!device.unavailable.empty()) add_test(device, {"every_operation", {}}, DType::fp32);
  return true;
}();

}  // namespace

// Error bounds of fp32 moments of n rows with mean m, variance v and a largest deviation d from m:
// sums of x, or of x minus any row, whose n partial sums grow up to n (|m| + d); sums of squares of
// x minus any row, up to n (v + d^2); in merging, twice sqrt(v / n) times the rounding of a mean;
// and the square of the mean's own error. The bounds don't cover sums of squares of x itself far
// from zero.
Tensor column_moments(const Values& inp, int rows, int C) {
  constexpr double rr = Tracked::rounding * Tracked::rounding;
  const double n = rows, growth = (n + 1) / 3;
  Tensor moments(2 * size_t(C));
  for (size_t c = 0; c < size_t(C); ++c) {
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = c; i < inp.size(); i += C) sum += inp[i];
    const double m = sum / n;
    for (size_t i = c; i < inp.size(); i += C) {
      const double square = (inp[i] - m) * (inp[i] - m);
      squares += square, largest = std::max(largest, square);
    }
    const double v = squares / n;
    const double of_mean = rr * (growth * (m * m + largest) + m * m);
    const double of_squares = rr * (growth * (v + largest) * (v + largest) + 4 * m * m * v / n);
    moments[c] = {m, of_mean}, moments[C + c] = {v, of_squares + 3 * of_mean * of_mean};
  }
  return moments;
}

std::vector<uint64_t> positive_words(const Values& out, int C) {
  const size_t rows = out.size() / size_t(C), groups = (size_t(C) + 63) / 64;
  std::vector<uint64_t> words(groups * rows, ~uint64_t{0});
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / size_t(C), c = i % size_t(C);
    if (!(out[i] > 0)) words[c / 64 * rows + row] &= ~(uint64_t{1} << c % 64);
  }
  return words;
}

void check_gradient(const char* name, Values& input, const Tensor& gradient,
                    const std::function<double()>& loss) {
  ASSERT_EQ(input.size(), gradient.size()) << name;
  const size_t step = std::max<size_t>(1, input.size() / 60);
  Values claimed, measured, tolerance;
  for (size_t i = 0; i < input.size(); i += step) {
    const double h = 1e-5, x = input[i];
    input[i] = x + h;
    const double above = loss();
    input[i] = x - h;
    const double below = loss();
    input[i] = x;
    claimed.push_back(gradient[i].value);
    measured.push_back((above - below) / (2 * h));
    tolerance.push_back(1e-7 * (1 + std::fabs(claimed.back())));
  }
  const Comparison c = compare(claimed, measured, tolerance);
  EXPECT_TRUE(c.ok()) << name << ": " << c.describe(std::vector{int(claimed.size())});
}

}  // namespace bv::test
