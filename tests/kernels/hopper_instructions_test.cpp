// HopperInstructions/DEVICE.NAME: the checks of tests/gpu/hopper_checks.cu.
#include <gtest/gtest.h>

#include "tests/kernels/device.h"
#include "tests/kernels/hopper_checks.h"

namespace bv::test {
namespace {

class Instruction : public testing::Test {
 public:
  Instruction(Device device, InstructionCheck check) : device_(std::move(device)), check_(check) {}
  void TestBody() override {
    if (!device_.unavailable.empty()) GTEST_SKIP() << device_.unavailable;
    const StandInChip chip(device_.chip);
    if (!device_.chip.empty())
      for (const Device::Variant& order : device_.variants) {
        order.set();
        EXPECT_EQ(check_.wrong(), "") << order.name;
      }
    else
      EXPECT_EQ(check_.wrong(), "");
  }

 private:
  Device device_;
  InstructionCheck check_;
};

void add(const Device& device, const std::string& name,
         const std::vector<InstructionCheck>& checks) {
  for (const InstructionCheck& check : checks)
    testing::RegisterTest(("HopperInstructions/" + name).c_str(), check.name, nullptr, nullptr,
                          __FILE__, __LINE__,
                          [=]() -> Instruction* { return new Instruction(device, check); });
}

[[maybe_unused]] const bool added = [] {
  for (const Device& device : devices_to_test()) {
#ifdef BAREVISION_SIMT
    if (device.name == "simt_hopper") add(device, "simt", simt_gpu::hopper_checks());
#endif
#ifdef BAREVISION_CUDA
    if (device.name == "cuda_hopper" && cuda_gpu::hopper_checks)
      add(device, "cuda", cuda_gpu::hopper_checks());
#endif
  }
  return true;
}();

}  // namespace
}  // namespace bv::test
