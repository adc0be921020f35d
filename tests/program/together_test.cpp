// A run with all features is stopped in the middle of an epoch and resumed. With the same settings,
// or without stages, it ends with the bits of an uninterrupted run; with replicas or on another
// device, its losses and averages are equal within a tolerance.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "data/records/example.h"
#include "engine/files/safetensors.h"
#include "kernels/devices/devices.h"
#include "tests/emulated_bf16.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

struct Everything {
  std::string model, words;
};

// 45 training images: an epoch has five batches and three updates, the last of one batch.
constexpr int updates = 3;
const std::string all =
    "--data packed --image-size 32 --val-fraction .25 --batch 8 --accumulate 2 "
    "--epochs 3 --lr 2e-3 --augment strong --color-jitter .4,.3,.2,.1 --vflip .3 --ema .9 "
    "--clip-grad 1 --best-by loss --log-every 1 --save-every 3steps --workers 1 --precision bf16 "
    "--amp-policy 1 --amp-start 1 --amp-end 2 ";

class Together : public ProgramTest, public testing::WithParamInterface<Everything> {
 protected:
  void SetUp() override {
    if (!have_records) GTEST_SKIP() << "without protobuf";
    if (const std::string why = emulated_.lack(); !why.empty()) GTEST_SKIP() << why;
    make_class_folders(in("photos"), 3, 20);
    go("data list photos list.txt");
    go("data pack list.txt packed --name all --shards 2");
  }
  // Without the line for the interrupted part of an epoch.
  std::vector<std::string> whole_epochs(const std::string& run, const std::string& member) const {
    const auto steps = metric(in(run), "epoch", "step"), values = metric(in(run), "epoch", member);
    std::vector<std::string> some;
    for (size_t i = 0; i < values.size(); ++i)
      if (std::stoi(steps[i]) % updates == 0) some.push_back(values[i]);
    return some;
  }
  // Resumes a copy of the interrupted run.
  void resume(const std::string& as, const std::string& words) const {
    std::filesystem::copy(
        in("cut"), in(as),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    go("--resume " + as + " --steps 9 " + words);
    for (const char* member : {"precision", "precision_reason"})
      EXPECT_EQ(whole_epochs("whole", member), whole_epochs(as, member)) << as;
  }
  void expect_same(const std::string& run) const {
    for (const std::string file : {"weights", "ema", "state"}) {
      const std::string path = "/last/" + file + ".safetensors";
      EXPECT_TRUE(contents(in("whole" + path)) == contents(in(run + path))) << run << path;
    }
    for (const char* member : {"step", "loss", "top1", "lr", "grad_norm"})
      EXPECT_EQ(metric(in("whole"), "step", member), metric(in(run), "step", member)) << run;
    for (const char* member : {"train_loss", "val_loss", "val_top1", "ema_loss", "ema_top1"})
      EXPECT_EQ(whole_epochs("whole", member), whole_epochs(run, member)) << run;
  }
  void expect_near(const std::string& run, double tolerance) const {
    const auto got = losses(in(run)), want = losses(in("whole"));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << run << ", step " << i + 1;
    const auto average = [&](const std::string& of) {
      return read_safetensors(in(of) + "/last/ema.safetensors").tensors;
    };
    const auto near = average(run), whole = average("whole");
    for (const auto& [name, tensor] : whole) {
      double difference = 0, size = 0;
      for (size_t i = 0; i < tensor.data.size(); ++i) {
        difference += std::pow(near.at(name).data[i] - tensor.data[i], 2);
        size += std::pow(tensor.data[i], 2);
      }
      EXPECT_LE(std::sqrt(difference), 10 * tolerance * std::sqrt(size) + 1e-6) << run << name;
    }
  }

  const EmulatedBf16 emulated_;
};

TEST_P(Together, ResumedFromTheMiddleOfAnEpoch) {
  if (GetParam().model == "resnet34")
    change_model("resnet34", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  else
    change_model("vit_tiny", "\"depth\": 12", "\"depth\": 4");
  const std::string words = "-n 2 --pipeline 2 " + GetParam().model + " " + all + GetParam().words;
  go(words + "--out whole");
  go(words + "--steps 4 --out cut");
  resume("same", "");
  expect_same("same");
  resume("one", "-n 1 --pipeline 1");
  expect_same("one");
  resume("replicas", "-n 4 --pipeline 2 ");
  expect_near("replicas", 2e-3);
  if (!is_built(DeviceKind::simt) || GetParam().model == "resnet34") return;  // too slow there
  resume("simt", "-n 1 --pipeline 1 --device simt");
  expect_near("simt", .02);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Together,
    testing::Values(Everything{"vit_tiny",
                               "--patch-size 16 --optimizer adamw --layer-decay .8 --drop-rate .1 "
                               "--pos-drop-rate .1 --proj-drop-rate .1 --attn-drop-rate .1 "
                               "--drop-path-rate .1 --mixup .2 --cutmix 1 --micro-batches 2 "},
                    Everything{"resnet34", "--optimizer sgd --sync-bn --micro-batches 1 "}),
    [](const auto& test) { return test.param.model; });

}  // namespace
}  // namespace bv::test
