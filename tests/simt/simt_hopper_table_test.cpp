// KernelTable/simt_hopper: small cases, which `make test` runs, and on a GPU the sanitizers, reach
// the kernels made for sm_90; a table of cases that these don't take would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/table/rows.h"
#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

// Asks of each operation, instead of running it, whether such a kernel would.
class Asking final : public KernelRows<Asking> {
 public:
  std::set<std::string> taken;
  template <class Op>
  void dispatch(Op op, Stream) {
    if (hopper_->by_hopper(op)) taken.insert(Fields(op).operation);
  }
  template <class Op>
  size_t workspace(const Op&) {
    return 0;
  }

 private:
  std::unique_ptr<Kernels> hopper_ = simt_gpu::make_hopper_kernels(nullptr);
};

TEST(SimtHopperTable, SmallCasesReachEachOperationsKernel) {
  const StandInChip chip("sm_90");
  const auto devices = devices_to_test();
  const auto device = std::ranges::find(devices, "simt_hopper", &Device::name);
  if (device == devices.end()) GTEST_SKIP() << "the stand-in is not under test";
  Asking asking;
  for (const KernelCase& c : registered_cases()) {
    if (!is_case_of(*device->operations, c.name) || work_of(c.name) > 1 << 16) continue;
    const Problem problem = c.make(DType::bf16);
    DeviceArguments memory(*device, problem.arguments, 0xFF);
    problem.run(asking, memory);
  }
  for (const std::string& operation : *device->operations)
    EXPECT_TRUE(asking.taken.contains(operation)) << operation;
}

}  // namespace
}  // namespace bv::test
