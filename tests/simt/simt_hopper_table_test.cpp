// KernelTable/simt_hopper: the cases of `make test` reach the kernels made for sm_90, in all their
// tiles; a table of cases that these don't take would prove nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/kernel_table.h"
#include "simt/device/control.h"
#include "tests/kernels/kernel_test.h"

namespace bv::test {
namespace {

// Asks of each operation, instead of running it, whether such a kernel would.
class Asking final : public KernelRows<Asking> {
 public:
  std::set<std::string> taken;
  bool in_parts = false;  // a weight's gradient was summed in several
  template <class Op>
  void dispatch(Op op, Stream) {
    if (!hopper_->by_hopper(op)) return;
    taken.insert(Fields(op).operation);
    if (std::is_same_v<Op, LinearBackwardWeight> && hopper_->workspace_bytes(op)) in_parts = true;
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
    if (!is_case_of(*device->operations, c.name) || work_of(c.name) > 1 << 20) continue;
    const Problem problem = c.make(DType::bf16);
    DeviceArguments memory(*device, problem.arguments, 0xFF);
    problem.run(asking, memory);
  }
  for (const std::string& operation : *device->operations)
    EXPECT_TRUE(asking.taken.contains(operation)) << operation;
  EXPECT_TRUE(asking.in_parts);
}

// "128, 192" of a product's kernel, by operation: epilogue, and where its second operand lies.
std::map<std::string, std::set<std::string>> tiles_run() {
  std::map<std::string, std::set<std::string>> tiles;
  const std::regex parts(
      "sm90_product<Product<.*bfloat16, Along(K|Rows), Along(K|Rows), "
      "(\\w+)(<.*>)?, (\\d+, \\d+)> >");
  for (const std::string& kernel : simt::kernels_run())
    if (std::smatch found; std::regex_match(kernel, found, parts))
      tiles[found[3].str() + " " + found[2].str()].insert(found[5]);
  return tiles;
}

// The wide ones are the best for a few shapes, which stand in the tables of cases for this.
TEST(SimtHopperTable, CasesReachEachTile) {
  const auto devices = devices_to_test();
  const auto device = std::ranges::find(devices, "simt_hopper", &Device::name);
  if (device == devices.end()) GTEST_SKIP() << "the stand-in is not under test";
  const auto is_wide = [](const std::string& name) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    return has("_M65_") || has("_M270_") || has("_M300_") || has("_M33_N128_");
  };
  for (const KernelCase& c : registered_cases())
    if (is_case_of(*device->operations, c.name) && work_of(c.name) < 1e6 && is_wide(c.name)) {
      const Outcome outcome = execute(c.make(DType::bf16), *device, 0, 0xFF);
      EXPECT_EQ(outcome.failures, std::vector<std::string>()) << c.name;
    }
  const std::set<std::string> all{"128, 64", "128, 128", "128, 192"};
  const std::map<std::string, std::set<std::string>> want{
      {"AddBias K", all},
      {"AddBias Rows", all},
      {"AddBiasGelu K", all},
      {"TimesGeluSlope Rows", {"128, 64", "128, 128"}},
      {"ToFp32 Rows", {"64, 64", "128, 128", "128, 192"}}};
  EXPECT_EQ(tiles_run(), want);
}

}  // namespace
}  // namespace bv::test
