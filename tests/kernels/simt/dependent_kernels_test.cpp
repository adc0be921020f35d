// Every kernel must wait for the kernel ahead. These tests run the kernels that --kernels hopper
// uses but that aren't made for sm_90; KernelTable/simt_hopper tests the others, in all its rows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/kernels/behind_a_kernel.h"
#include "tests/kernels/gpu_device.h"
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

class DependentLaunches : public testing::Test {
 protected:
  void SetUp() override {
    behind_a_kernel = true;
    run_behind = {};
  }
  void TearDown() override {
    behind_a_kernel = false;
    unsetenv("BAREVISION_DEPENDENT_LAUNCHES");
  }
  // Runs the smallest cases of each kind whose name starts with `beginning`, such as
  // "layernorm_forward"; all results must be right.
  void run_cases(DType dtype, const std::string& beginning = "") {
    const Device device = with_a_kernel_ahead(simt_gpu::gpu_device(KernelSet::hopper));
    std::map<std::string, std::multimap<double, const KernelCase*>> kinds;
    for (const KernelCase& c : registered_cases()) {
      const size_t words = c.name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
      if (!c.cpu_only && c.name.starts_with(beginning))
        kinds[c.name.substr(0, words)].insert({work_of(c.name), &c});
    }
    for (const auto& [name, by_work] : kinds)
      for (int left = 8; const auto& [work, c] : by_work) {
        if (left-- == 0) break;
        EXPECT_EQ(execute(c->make(dtype), device, 0, 0x40).failures, std::vector<std::string>())
            << c->name;
      }
  }
};

TEST_F(DependentLaunches, WaitForTheKernelAhead) {
  run_cases(DType::bf16);
  EXPECT_EQ(run_behind.early, run_behind.all);
  EXPECT_GT(run_behind.all.size(), 40u);
}

// Attention has different kernels in fp32.
TEST_F(DependentLaunches, WaitForItInFp32) { run_cases(DType::fp32, "attention"); }

TEST_F(DependentLaunches, CanBeSwitchedOff) {
  setenv("BAREVISION_DEPENDENT_LAUNCHES", "0", 1);
  run_cases(DType::bf16, "layernorm");
  EXPECT_EQ(run_behind.all.size(), 2u);
  EXPECT_EQ(run_behind.early, std::set<std::string>());
}

}  // namespace
}  // namespace bv::test
