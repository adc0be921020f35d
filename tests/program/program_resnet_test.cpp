// The whole program with a ResNet of one block per stage: running statistics in checkpoints, a val
// loss that batch norm explains, refusals.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/files/safetensors.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string short_run = "resnet34 --data cifar --log-every 1 --epochs 4 --save-every 100 ";
const std::string on_cifar = short_run + "--batch 12 --lr 0.01 ";

class ProgramResnet : public ProgramTest {
 protected:
  void SetUp() override {
    make_cifar(in("cifar"));
    change_model("resnet34", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
    std::filesystem::copy(models_ + "/resnet50.json", in("models"));
  }
  std::map<std::string, HostTensor> weights(const std::string& run) const {
    return read_safetensors(in(run) + "/last/weights.safetensors").tensors;
  }
  void expect_refused(const std::string& words, const std::string& reason) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words;
    EXPECT_TRUE(has(end.errors, reason));
  }
};

TEST_F(ProgramResnet, WeightsStartAnotherRunAndSayWhatIsNew) {
  go(on_cifar + "--out first --steps 3");
  const auto saved = weights("first");
  EXPECT_EQ(saved.at("conv1.weight").shape, (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(saved.at("layer4.0.conv1.weight").shape, (std::vector<int64_t>{512, 256, 3, 3}));
  EXPECT_TRUE(saved.contains("bn1.running_mean"));
  const std::string file = in("first") + "/last/weights.safetensors";
  // A step at learning rate 0 changes only the running statistics, by a tenth.
  go(short_run + "--batch 12 --lr 0 --weights " + file + " --out second --steps 1");
  const auto again = weights("second");
  EXPECT_EQ(again.at("layer3.0.conv2.weight").data, saved.at("layer3.0.conv2.weight").data);
  EXPECT_NE(again.at("bn1.running_mean").data, saved.at("bn1.running_mean").data);
  make_class_folders(in("photos"), 3, 12);
  const Finished end = go("resnet34 --data photos --image-size 32 --batch 4 --steps 1 --weights " +
                          file + " --out third");
  EXPECT_TRUE(has(end.output, "60 of 62 tensors, new head (10 classes there, 3 here)"));
  expect_refused("resnet50 --data cifar --out fourth --weights " + file,
                 "weights of resnet34, not of resnet50");
}

// A file without metadata.
TEST_F(ProgramResnet, ForeignWeightsOfTheOtherResnetAreRefusedByWhatDoesntFit) {
  go(on_cifar + "--out first --steps 1");
  TensorFile file = read_safetensors(in("first") + "/last/weights.safetensors");
  file.metadata.clear();
  file.tensors["bn1.num_batches_tracked"] = {.shape = {}, .data = {7}};
  write_safetensors(in("foreign.safetensors"), file);
  go(on_cifar + "--out second --steps 1 --weights foreign.safetensors");
  expect_refused("resnet50 --data cifar --out third --weights foreign.safetensors",
                 "foreign.safetensors: these weights don't fit the model; missing: ");
}

// At a high learning rate, the running statistics need some updates to follow the weights.
TEST_F(ProgramResnet, AValLossFarAboveGuessingIsExplained) {
  const Finished young = go(short_run + "--batch 12 --lr 1 --out young");
  EXPECT_TRUE(has(young.output, " is far above ln(10) = 2.3, that of random guessing: after "));
  EXPECT_TRUE(has(young.output, " batch norm's running statistics lag behind the weights"));
  EXPECT_FALSE(has(young.output, "warning: val loss"));
  const Finished usual = go(on_cifar + "--out usual");
  EXPECT_FALSE(has(usual.output, "that of random guessing"));
}

TEST_F(ProgramResnet, WhatCantBeTrainedIsRefused) {
  expect_refused("resnet34 --data cifar --batch 1 --out a",
                 "layer4.0.bn1 has a single value per channel");
  expect_refused("resnet34 --data cifar --patch-size 4 --out a", "resnet34 has no patches");
  expect_refused("resnet34 --data cifar --image-size 5 --out a", "; try --image-size 32");
  expect_refused("resnet34 --data cifar --device cpu --conv cudnn --out a",
                 "--conv cudnn: cuDNN computes on GPUs");
  EXPECT_FALSE(std::filesystem::exists(in("a")));
}

}  // namespace
}  // namespace bv::test
