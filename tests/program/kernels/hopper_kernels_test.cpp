// --kernels hopper, the kernels made for sm_90, on a stand-in for such a GPU: what is said of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/json.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class HopperKernels : public ShallowProgramTest {
 protected:
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
    make_cifar(in("cifar"));
  }
  Finished as_sm_90(const std::string& words) const {
    return go(words, {.environment = {{"SIMT_ARCH", "sm_90"}}});
  }
};

const std::string steps = on_vit + "--data cifar --batch 4 --precision bf16 --device simt ";
// 14 layers (three blocks of four, the patch embedding and the head) with three products each; the
// patch embedding has no input gradient.
const std::string line =
    "\nkernels: hopper, linear 38 of 41, attention 6 of 6, convolution 0 of 0; the rest as auto\n";

TEST_F(HopperKernels, TrainResumeAndEvaluate) {
  const Finished run = as_sm_90(steps + "--steps 1 --kernels hopper --out run");
  EXPECT_TRUE(has(run.output, line));
  const Json config = parse_json_object(contents(in("run/config.json")), "config.json");
  EXPECT_EQ(config["kernels"], "hopper");
  EXPECT_TRUE(has(as_sm_90("--resume run --steps 2").output, line));
  // On another GPU, the run's --kernels is ignored.
  const std::string elsewhere =
      "\nkernels: auto, not the run's --kernels hopper: these kernels are made for sm_90 (H100, "
      "H200), the stand-in is an sm_80; SIMT_ARCH=sm_90 makes it one\n";
  EXPECT_TRUE(has(go("--resume run --steps 3").output, elsewhere));
  EXPECT_TRUE(has(as_sm_90("eval run --device simt").output,
                  "\nkernels: hopper, linear 13 of 14, attention 3 of 3, convolution 0 of 0; the "
                  "rest as auto\n"));
  EXPECT_TRUE(has(go("eval run --device cpu --precision fp32").output,
                  "\nkernels: the cpu's, not the run's --kernels hopper\n"));
}

TEST_F(HopperKernels, PlanPrintsWhichOperationsTheyRun) {
  const std::string plan = as_sm_90(steps + "--kernels hopper --plan").output;
  EXPECT_TRUE(has(plan, line));
  EXPECT_TRUE(has(plan, "\nLinearForward                   M20 N576 K192 "));
  EXPECT_FALSE(has(as_sm_90(steps + "--plan").output, "kernels"));
}

// Attention heads of 64 channels; the stem and ResNeXt's grouped convolutions are left to the other
// kernels.
TEST_F(HopperKernels, PlanCountsThemInEachModel) {
  change_model("vit_tiny_distilled", "\"depth\": 12", "\"depth\": 3");
  change_model("vit_large", "\"depth\": 24", "\"depth\": 2");
  for (const char* model : {"resnet34", "resnet50", "resnext50_32x4d"})
    change_model(model, "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  for (const auto& [model, count] :
       {std::pair{"vit_tiny_distilled --image-size 128 --patch-size 16 --attn-drop-rate .1 "
                  "--drop-path-rate .3 --recompute blocks ",
                  "attention 8 of 8"},
        {"vit_large --image-size 32 --patch-size 16 --drop-path-rate .5 --proj-drop-rate .1 ",
         "attention 4 of 4"},
        {"resnet34 --image-size 32 ", "convolution 33 of 35"},
        {"resnet50 --image-size 32 ", "convolution 48 of 50"},
        {"resnext50_32x4d --image-size 32 ", "convolution 36 of 50"}}) {
    const std::string words = std::string(model) + "--data cifar --batch 8 --device simt --plan ";
    EXPECT_TRUE(has(as_sm_90(words + "--precision bf16 --kernels hopper").output, count)) << model;
  }
}

TEST_F(HopperKernels, AConfigFileAsksForThem) {
  write_text(in("c.json"), "{\"kernels\": \"hopper\"}");
  EXPECT_TRUE(has(as_sm_90(steps + "--config c.json --plan").output, line));
  const Finished end = refuse(steps + "--config c.json --plan");
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(end.errors.starts_with("c.json: --kernels hopper: these kernels are made for"))
      << end.errors;
}

TEST_F(HopperKernels, AreRefusedInALineBeforeAnythingIsWritten) {
  const auto refused = [&](const std::string& words, const std::string& why) {
    const Finished end = refuse(on_vit + "--data cifar --kernels hopper --out a " + words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), why)) << end.errors;
  };
  refused("--device cpu", "--kernels hopper: these kernels are made for sm_90 GPUs");
  refused("--device simt", "SIMT_ARCH=sm_90 makes it one");
  refused("--device simt --conv cudnn", "--conv cudnn asks for other convolutions");
  refused("-n 2 --device simt", "SIMT_ARCH=sm_90 makes it one");
  EXPECT_FALSE(std::filesystem::exists(in("a")));
}

}  // namespace
}  // namespace bv::test
