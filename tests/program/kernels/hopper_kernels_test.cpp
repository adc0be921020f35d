// --kernels hopper: training steps with the kernels made for sm_90, on a stand-in for such a GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "base/json.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"
#include "tests/turn.h"

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
  const Finished run = as_sm_90(steps + "--steps 2 --kernels hopper --out run");
  EXPECT_TRUE(has(run.output, line));
  as_sm_90(steps + "--steps 2 --out auto");
  const std::vector<double> want = losses(in("auto")), got = losses(in("run"));
  ASSERT_EQ(got.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], want[i], .02) << "step " << i + 1;

  as_sm_90(steps + "--steps 2 --kernels hopper --no-graph --out single");
  const auto weights = [&](const std::string& of) {
    return contents(in(of + "/last/weights.safetensors"));
  };
  EXPECT_TRUE(weights("single") == weights("run")) << "without graphs";
  EXPECT_FALSE(weights("auto") == weights("run"));

  const Json config = parse_json_object(contents(in("run/config.json")), "config.json");
  EXPECT_EQ(config["kernels"], "hopper");
  EXPECT_TRUE(has(as_sm_90("--resume run --steps 3").output, line));
  // On another GPU, the run's --kernels is ignored.
  const std::string elsewhere =
      "\nkernels: auto, not the run's --kernels hopper: these kernels are made for sm_90 (H100, "
      "H200), the stand-in is an sm_80; SIMT_ARCH=sm_90 makes it one\n";
  EXPECT_TRUE(has(go("--resume run --steps 4").output, elsewhere));
  EXPECT_TRUE(has(as_sm_90("eval run --device simt").output,
                  "\nkernels: hopper, linear 13 of 14, attention 3 of 3, convolution 0 of 0; the "
                  "rest as auto\n"));
  EXPECT_TRUE(has(go("eval run --device cpu --precision fp32").output,
                  "\nkernels: the cpu's, not the run's --kernels hopper\n"));
}

// Attention heads of 64 channels, dropout, drop path, two classifier heads, recomputed blocks.
TEST_F(HopperKernels, TrainViTs) {
  change_model("vit_tiny_distilled", "\"depth\": 12", "\"depth\": 3");
  change_model("vit_large", "\"depth\": 24", "\"depth\": 2");
  if (!is_its_turn(2u) && !is_its_turn(3u)) GTEST_SKIP() << "in another turn";
  const std::tuple<std::string, const char*, uint32_t> models[] = {
      {"vit_tiny_distilled --image-size 128 --attn-drop-rate .1 --drop-path-rate .3 "
       "--recompute blocks ",
       "attention 8 of 8", 3},
      {"vit_large --image-size 32 --drop-path-rate .5 --proj-drop-rate .1 ", "attention 4 of 4",
       2}};
  for (const auto& [model, count, turn] : models) {
    if (!is_its_turn(turn)) continue;
    const std::string words = model +
                              "--patch-size 16 --log-every 1 --data cifar --batch 4 --steps 3 "
                              "--lr 1e-4 --precision bf16 --device simt ";
    EXPECT_TRUE(has(as_sm_90(words + "--kernels hopper --out hopper").output, count));
    as_sm_90(words + "--out auto");
    const auto want = losses(in("auto")), got = losses(in("hopper"));
    ASSERT_EQ(got.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], want[i], .02) << model << " step " << i + 1;
    std::filesystem::remove_all(in("hopper"));
    std::filesystem::remove_all(in("auto"));
  }
}

// The stem and ResNeXt's grouped convolutions are left to the other kernels.
TEST_F(HopperKernels, TrainResNets) {
  if (is_its_turn(3u) && !is_its_turn(0u)) GTEST_SKIP() << "in another turn";
  const std::tuple<std::string, const char*, uint32_t> models[] = {
      {"resnet34", "convolution 33 of 35", 0},
      {"resnet50", "convolution 48 of 50", 1},
      {"resnext50_32x4d", "convolution 36 of 50", 2}};
  for (const auto& [model, count, turn] : models) {
    if (!is_its_turn(turn)) continue;
    change_model(model, "[3, 4, 6, 3]", "[1, 1, 1, 1]");
    const std::string words = model +
                              " --image-size 32 --log-every 1 --data cifar --batch 8 --steps 3 "
                              "--lr 1e-4 --precision fp16 --loss-scale 256 --device simt ";
    EXPECT_TRUE(has(as_sm_90(words + "--kernels hopper --out run-" + model).output, count));
    as_sm_90(words + "--out auto-" + model);
    const auto want = losses(in("auto-" + model)), got = losses(in("run-" + model));
    ASSERT_EQ(got.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], want[i], .02) << model << " step " << i + 1;
    if (model != "resnet50") continue;
    as_sm_90(words + "--kernels hopper --no-graph --out single");
    const auto weights = [&](const std::string& run) {
      return contents(in(run + "/last/weights.safetensors"));
    };
    EXPECT_TRUE(weights("single") == weights("run-resnet50")) << "without graphs";
    EXPECT_FALSE(weights("auto-resnet50") == weights("run-resnet50"));
  }
}

TEST_F(HopperKernels, PlanPrintsWhichOperationsTheyRun) {
  const std::string plan = as_sm_90(steps + "--kernels hopper --plan").output;
  EXPECT_TRUE(has(plan, line));
  EXPECT_TRUE(has(plan, "\nLinearForward                   M20 N576 K192 "));
  EXPECT_FALSE(has(as_sm_90(steps + "--plan").output, "kernels"));
}

TEST_F(HopperKernels, AConfigFileAsksForThem) {
  write_text(in("c.json"), "{\"kernels\": \"hopper\"}");
  EXPECT_TRUE(has(as_sm_90(steps + "--config c.json --plan").output, line));
  const Finished end = refuse(steps + "--config c.json --plan");
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(end.errors.starts_with("--kernels hopper: these kernels are made for")) << end.errors;
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
