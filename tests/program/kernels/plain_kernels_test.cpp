// --kernels plain: training steps with the kernels that compute one output per thread.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class PlainKernels : public ProgramTest {
 protected:
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  }
  std::vector<double> losses_of(const std::string& words, bool plain) {
    const std::string out = "run" + std::to_string(runs_++);
    const Finished end =
        go(words + " --data synthetic --image-size 32 --log-every 1 --steps 5 --out " + out);
    EXPECT_EQ(static_cast<bool>(has(end.output, "\nkernels: plain\n")), plain) << words;
    return losses(in(out));
  }
  // Five steps with each of the two kernel sets.
  void expect_same_losses(const std::string& words, double tolerance) {
    const std::vector<double> want = losses_of(words + " --device simt", false);
    const std::vector<double> got = losses_of(words + " --device simt --kernels plain", true);
    ASSERT_EQ(got.size(), 5u);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], tolerance) << words << ", step " << i + 1;
  }
  // For models whose losses change by more through rounding alone: the tolerance is 1e-4 and five
  // times the difference between the CPU's losses and those of the fast kernels.
  void expect_losses_as_near_as_the_cpus(const std::string& words) {
    const std::vector<double> cpu = losses_of(words + " --device cpu --precision fp32", false);
    const std::vector<double> fast = losses_of(words + " --device simt", false);
    const std::vector<double> plain = losses_of(words + " --device simt --kernels plain", true);
    ASSERT_EQ(plain.size(), 5u);
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_NEAR(plain[i], fast[i], 1e-4 + 5 * std::abs(cpu[i] - fast[i]))
          << words << ", step " << i + 1;
  }
  void expect_refused(const std::string& words, const std::string& line) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(is_line(end.errors.substr(0, end.errors.size() - 1), line)) << words;
  }

  int runs_ = 0;
};

// Images of 32 pixels leave the last batch norms 8 values per channel, which makes rounding errors
// grow: at larger learning rates, and in deep models at any, the CPU's losses, too, would differ.
const std::string small_steps = " --batch 8 --lr 1e-3";

TEST_F(PlainKernels, TrainAResnetWithTheLossesOfTheFastOnes) {
  change_model("resnet34", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  expect_same_losses("resnet34" + small_steps, 1e-4);
}

TEST_F(PlainKernels, TrainAVitWithTheLossesOfTheFastOnes) {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 2");
  for (const std::string precision : {"fp32", "fp16", "bf16"})
    expect_same_losses(
        "vit_tiny --patch-size 16 --batch 8 --drop-path-rate .2 --attn-drop-rate .1 "
        "--mixup .2 --precision " +
            precision,
        precision == "fp32" ? 1e-4 : .02);
}

TEST_F(PlainKernels, TrainEveryModelWithTheLossesOfTheFastOnes) {
  if (!std::getenv("BAREVISION_TEST_ALL")) GTEST_SKIP() << "in make test-all";
  expect_same_losses("resnet34" + small_steps, 1e-4);
  for (const std::string model : {"resnet50", "resnext50_32x4d"})
    expect_losses_as_near_as_the_cpus(model + small_steps);
  expect_same_losses("vit_tiny --patch-size 16 --batch 8", 1e-4);
  expect_same_losses("vit_large --patch-size 16 --batch 2", 1e-4);
}

TEST_F(PlainKernels, AreRefusedWhereTheDeviceHasNone) {
  const std::string words = "resnet34 --data synthetic --kernels plain --out a ";
  expect_refused(words + "--device cpu", "--kernels plain: these are GPU kernels");
  expect_refused(words + "--device simt --conv cudnn", "--conv cudnn asks for other convolutions");
  expect_refused(words + "--device simt --kernels plane",
                 "--kernels plane: must be one of auto, plain, hopper");
  EXPECT_FALSE(std::filesystem::exists(in("a")));
}

TEST_F(PlainKernels, EvaluateAndPredictToo) {
  make_cifar(in("cifar"));
  make_class_folders(in("photos"), 2, 2);
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 1");
  go(on_vit + "--data cifar --batch 6 --steps 2 --device simt --out run");
  const auto loss_of = [&](const std::string& words) {
    return parse_json_object(go("eval run --device simt --json" + words).output, "eval")["loss"]
        .get<double>();
  };
  EXPECT_NEAR(loss_of(" --kernels plain"), loss_of(""), 1e-5);
  EXPECT_TRUE(has(go("eval run --device simt --kernels plain").output, "\nkernels: plain\n"));
  EXPECT_FALSE(has(go("eval run --device simt").output, "kernels:"));
  EXPECT_TRUE(has(go("predict run photos --device simt --kernels plain").errors, "kernels: plain"));
  expect_refused("eval run --device cpu --kernels plain", "--kernels plain");
  // On another device, the run's --kernels is ignored.
  go("--resume run --steps 3 --kernels plain");
  go("eval run --device cpu");
}

}  // namespace
}  // namespace bv::test
