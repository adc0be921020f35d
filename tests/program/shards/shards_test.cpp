// --shards: the same weights from any number of processes. --reduce-dtype: gradients in 16 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class ProgramShards : public ShallowProgramTest {
 protected:
  // Runs of `words` on these numbers of processes end with the same weights and moments.
  void expect_same_bits(const std::string& words, std::initializer_list<int> processes) const {
    std::string first;
    for (const int n : processes) {
      const std::string run = "run" + std::to_string(runs_++);
      go("-n " + std::to_string(n) + " " + words + " --out " + run);
      if (first.empty()) first = run;
      for (const char* file : {"/last/weights.safetensors", "/last/state.safetensors"})
        EXPECT_TRUE(contents(in(run) + file) == contents(in(first) + file)) << words << n << file;
    }
  }
  void expect_refused(const std::string& words, const std::string& errors) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, errors) << words;
  }
  mutable int runs_ = 0;
};

const std::string vit = on_vit + "--data synthetic --batch 8 --steps 3 --save-every 100 ";

TEST_F(ProgramShards, GiveTheSameWeightsOnAnyNumberOfProcesses) {
  const std::string all = vit +
                          "--shards 4 --drop-rate 0.1 --drop-path-rate 0.1 --mixup 0.2 "
                          "--clip-grad 1 --ema 0.9 --accumulate 2";
  expect_same_bits(all, {1, 2, 4});
  EXPECT_FALSE(contents(in("run0/last/weights.safetensors")).empty());
  expect_same_bits(vit + "--shards 2 --optimizer sgd --momentum 0.9 --comm-streams 2", {1, 2});
  expect_same_bits(vit + "--shards 2 --pipeline 2", {2, 4});
}

TEST_F(ProgramShards, AResumedRunMayHaveAnotherNumberOfProcesses) {
  const std::string words = vit + "--shards 4 --ema 0.9 ";
  go("-n 1 " + words + "--out whole");
  go("-n 4 " + words + "--steps 1 --out parts");
  go("-n 2 --resume parts --steps 2");
  go("-n 1 --resume parts --steps 3");
  for (const char* file : {"/last/weights.safetensors", "/last/state.safetensors"})
    EXPECT_TRUE(contents(in("whole") + file) == contents(in("parts") + file)) << file;
}

TEST_F(ProgramShards, HoldOnSimtIn16Bits) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  expect_same_bits(vit + "--device simt --precision bf16 --shards 4 --drop-rate 0.1 --steps 2",
                   {1, 2, 4});
}

TEST_F(ProgramShards, AreRefusedWhereTheyCantBe) {
  const std::string words = on_vit + "--data synthetic --steps 1 ";
  expect_refused(words + "--batch 12 --shards 6",
                 "--shards 6: not a power of two, and shards are added in pairs; try 4 or 8\n");
  expect_refused("-n 3 " + words + "--batch 12 --shards 4",
                 "--shards 4 can't be divided among 3 processes; their number must divide it\n");
  expect_refused(words + "--batch 6 --shards 4",
                 "--batch 6 is not divisible by 4 shards; 4 would fit\n");
  expect_refused(words + "--batch 12 --shards 4 --mixup 0.2",
                 "--batch 12 is odd in each shard, and images are mixed in pairs; 8 would fit\n");
  expect_refused(words + "--batch 8 --shards 4 --micro-batches 2",
                 "--micro-batches 2: with --shards 4 there are 4; leave it out\n");
  expect_refused("-n 2 " + words + "--batch 8 --shards 4 --reduce-dtype bf16",
                 "--reduce-dtype bf16 rounds each process's sum, so with --shards the weights "
                 "would depend on how many processes there are; leave one out\n");
  expect_refused("-n 2 " + words + "--batch 8 --shards 4 --all-reduce 2d",
                 "--all-reduce 2d adds in another order than --shards; leave one out\n");
  expect_refused("-n 2 " + words + "--batch 8 --reduce-dtype bf16 --all-reduce 2d",
                 "--all-reduce 2d adds only in fp32; leave it out, or --reduce-dtype bf16\n");
  go(words + "--batch 8 --shards 4 --out run");
  expect_refused("--resume run --shards 2",
                 "--shards can't be changed with --resume: the run has 4; leave it out, or start a "
                 "new run from --weights run/last/weights.safetensors\n");
}

TEST_F(ProgramShards, ReduceDtypeRoundsGradientsOnTheirWay) {
  for (const std::string device : {"cpu", "simt"}) {
    if (device == "simt" && !is_built(DeviceKind::simt)) continue;
    const std::string words = "-n 2 " + vit + "--device " + device +
                              " --precision fp32 --optimizer sgd --lr 0.1 --steps 4 ";
    const auto of = [&](const std::string& dtype) {
      go(words + "--reduce-dtype " + dtype + " --out " + device + "-" + dtype);
      return losses(in(device + "-" + dtype));
    };
    const auto fp32 = of("fp32"), bf16 = of("bf16"), fp16 = of("fp16");
    ASSERT_EQ(bf16.size(), 4u);
    EXPECT_EQ(bf16[0], fp32[0]) << "before the first update";
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_NEAR(bf16[i], fp32[i], 5e-3 * fp32[i]) << device << i;
      EXPECT_NEAR(fp16[i], fp32[i], 1e-3 * fp32[i]) << device << i;
    }
    const auto weights = [&](const std::string& dtype) {
      return contents(in(device + "-" + dtype) + "/last/weights.safetensors");
    };
    EXPECT_FALSE(weights("bf16") == weights("fp32"));
    EXPECT_FALSE(weights("bf16") == weights("fp16"));
  }
}

class ProgramShardsOfResnet : public ProgramShards {
 protected:
  void SetUp() override {
    make_cifar(in("cifar"));
    change_model("resnet50", "[3, 4, 6, 3]", "[1, 1, 1, 1]");
  }
};

const std::string resnet =
    "resnet50 --data cifar --lr 0.01 --batch 16 --steps 2 --save-every 100 --shards 4 ";

TEST_F(ProgramShardsOfResnet, HaveTheSameRunningStatistics) {
  expect_same_bits(resnet, {1, 2, 4});
  expect_same_bits(resnet + "--accumulate 2", {1, 4});
}

TEST_F(ProgramShardsOfResnet, ShareTheStatisticsOfSyncedBatchNorm) {
  expect_same_bits(resnet + "--sync-bn", {1, 2, 4});
  expect_same_bits(resnet + "--sync-bn --recompute blocks", {1, 2});
  if (!is_built(DeviceKind::simt)) return;
  expect_same_bits(resnet + "--sync-bn --image-size 32 --device simt --steps 1", {1, 2});
}

// All shards' statistics together are those of the whole batch.
TEST_F(ProgramShardsOfResnet, SyncedBatchNormIsThatOfOneBatch) {
  const std::string gently =
      "resnet50 --data cifar --lr 1e-3 --batch 16 --steps 3 --log-every 1 --save-every 100 ";
  go(gently + "--out one");
  go(gently + "--shards 4 --sync-bn --out shards");
  go(gently + "--shards 4 --out own");
  const auto one = losses(in("one")), shards = losses(in("shards"));
  ASSERT_EQ(shards.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(shards[i], one[i], 5e-4 * one[i]) << i;
  EXPECT_GT(std::abs(losses(in("own"))[2] - one[2]), 1e-3);
}

}  // namespace
}  // namespace bv::test
