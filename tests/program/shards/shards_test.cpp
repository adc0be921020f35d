// --shards and --reduce-dtype: where they are refused.
#include <gtest/gtest.h>

#include "tests/program/program.h"

namespace bv::test {
namespace {

class ProgramShards : public ShallowProgramTest {
 protected:
  void expect_refused(const std::string& words, const std::string& errors) const {
    const Finished end = refuse(words);
    EXPECT_EQ(end.code, 2) << words << end.output;
    EXPECT_EQ(end.errors, errors) << words;
  }
};

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

}  // namespace
}  // namespace bv::test
