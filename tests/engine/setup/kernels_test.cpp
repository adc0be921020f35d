// --kernels: what it resolves to on each device, and which operations the log counts.
#include "engine/setup/kernels.h"

#include <gtest/gtest.h>

#include "app/commands/commands.h"
#include "base/error.h"
#include "bench/recorded_model.h"
#include "engine/options/config.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/device.h"

namespace bv::test {
namespace {

using Strings = std::vector<std::string>;

Options options_of(Strings words) {
  words.insert(words.begin(), "vit_tiny");
  return read_request(parse_command_line(words)).options;
}

std::string refusal(const Options& options, DeviceKind kind) {
  DeviceChoice device{kind};
  try {
    resolve_kernels(options, device);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

const Options hopper = options_of({"--kernels", "hopper"});

TEST(ResolveKernels, HopperIsRefusedWhereTheDeviceLacksIt) {
  EXPECT_EQ(refusal(hopper, DeviceKind::cpu),
            "--kernels hopper: these kernels are made for sm_90 GPUs, this run is on the cpu; "
            "--device simt with SIMT_ARCH=sm_90 runs them without a GPU");
  EXPECT_EQ(refusal(options_of({"--kernels", "hopper", "--conv", "cudnn"}), DeviceKind::cuda),
            "--kernels hopper: --conv cudnn asks for other convolutions; give only one");
  if (!is_built(DeviceKind::simt)) return;
  EXPECT_EQ(refusal(hopper, DeviceKind::simt),
            "--kernels hopper: these kernels are made for sm_90 (H100, H200), the stand-in is an "
            "sm_80; SIMT_ARCH=sm_90 makes it one");
  const StandInChip unknown("sm_91");
  EXPECT_NE(refusal(hopper, DeviceKind::simt).find("SIMT_ARCH=sm_91: unknown chip"),
            std::string::npos);
}

TEST(ResolveKernels, WhatAGpuLacksForHopper) {
  const HopperSupport all{.arch = 90, .compiled = true, .makes_tensor_maps = true};
  EXPECT_EQ(why_no_hopper(DeviceKind::cuda, all), "");
  HopperSupport lacks = all;
  lacks.arch = 100;
  EXPECT_EQ(why_no_hopper(DeviceKind::cuda, lacks),
            "these kernels are made for sm_90 (H100, H200), this GPU is an sm_100; --kernels auto "
            "has its kernels");
  lacks = all, lacks.compiled = false;
  EXPECT_EQ(why_no_hopper(DeviceKind::cuda, lacks),
            "this program has no code for sm_90a; run make on the machine with the GPU, or make "
            "dist");
  lacks = all, lacks.makes_tensor_maps = false;
  EXPECT_EQ(why_no_hopper(DeviceKind::cuda, lacks),
            "the NVIDIA driver lacks cuTensorMapEncodeTiled; install one for CUDA 13, or give "
            "--kernels auto");
}

TEST(ResolveKernels, HopperOnTheStandInAsAnSm90) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  const StandInChip chip("sm_90");
  DeviceChoice device{DeviceKind::simt};
  EXPECT_EQ(resolve_kernels(hopper, device), KernelSet::hopper);
  EXPECT_EQ(resolve_kernels(options_of({}), device), KernelSet::fast) << "auto doesn't take them";
  EXPECT_EQ(device.notes, Strings{});
}

// Claims the forward products of linear layers whose output features fill whole packs.
class SomeOfHopper final : public KernelRows<SomeOfHopper> {
 public:
  template <class Op>
  void dispatch(const Op&, Stream) {
    ADD_FAILURE() << "an operation was run";
  }
  template <class Op>
  size_t workspace(const Op&) {
    return 0;
  }

 private:
  bool is_by_hopper(size_t which, const void* op) const override {
    return which == AnyOperation(LinearForward{}).index() &&
           static_cast<const LinearForward*>(op)->shape.N % 8 == 0;
  }
};

TEST(HopperLine, CountsTheOperationsOfAStep) {
  const SomeOfHopper some;
  const auto line = [&](Strings words) {
    return hopper_line(record_model(std::move(words)), some);
  };
  // 50 layers, the first without a gradient of its input; a head of 1000 classes; 12 blocks.
  const std::string rest = ", attention 0 of 24, convolution 0 of 0; the rest as auto";
  EXPECT_EQ(line({"vit_tiny", "--batch", "2"}), "kernels: hopper, linear 14 of 149" + rest);
  EXPECT_EQ(line({"resnet34", "--batch", "2"}),
            "kernels: hopper, linear 1 of 3, attention 0 of 0, convolution 0 of 107; the rest as "
            "auto");
}

TEST(HopperLine, AndTheirTableHasThemByShape) {
  const std::string table =
      hopper_table(record_model({"vit_tiny", "--batch", "2"}), SomeOfHopper());
  const auto has = [&](const std::string& name, const std::string& rest) {
    const std::string line = name + std::string(32 - name.size(), ' ') + rest + "\n";
    EXPECT_NE(("\n" + table).find("\n" + line), std::string::npos) << line << table;
  };
  has("operation", "shape                                         calls  kernels");
  has("LinearForward", "M394 N576 K192                                   12  hopper");
  has("NormLinearBackwardInput +dsum", "M394 N576 K192                                   12  auto");
  has("AttentionForward", "B2 N197 H3 D64 Q197                              11  auto");
  EXPECT_EQ(table.find("LayerNorm"), std::string::npos);
}

}  // namespace
}  // namespace bv::test
