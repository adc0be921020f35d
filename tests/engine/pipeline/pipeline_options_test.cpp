// Effects of --pipeline, --micro-batches, --chunks and --partition on a run; refused values.
#include <gtest/gtest.h>

#include "tests/engine/pipeline/setup_of.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

std::string refusal(const std::string& words, int world) {
  return error_of([&] { setup_of(words, world); });
}

const std::string small_vit_run = "vit_tiny --image-size 32 --patch-size 16 ";

TEST(PipelineOptions, CutTheModel) {
  const auto s = setup_of(small_vit_run + "--batch 32 --pipeline 4 --micro-batches 8", 8);
  EXPECT_EQ(s.world, 8);
  EXPECT_EQ(s.replicas, 2);
  EXPECT_EQ(*s.options.local_batch, 16);
  EXPECT_EQ(s.pipeline.micro_batch, 2);
  EXPECT_EQ(s.pipeline.blocks, (std::vector{3, 3, 3, 3}));
  EXPECT_EQ(s.graph.info(s.graph.logits()).shape[0], 2);
  EXPECT_TRUE(
      describe(s.pipeline)
          .starts_with("4 stages x 2 replicas, 8 micro-batches of 2, cost split 3,3,3,3, bubble "))
      << describe(s.pipeline);
  const std::vector<Slice> parts = s.pipeline.slices();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[1].begin, s.graph.cuts()[3]);
  EXPECT_EQ(parts[1].end, s.graph.cuts()[6]);
}

TEST(PipelineOptions, ChunksTakeTurns) {
  const auto s =
      setup_of(small_vit_run + "--batch 16 --pipeline 2 --chunks 2 --partition 2,3,3,4", 2);
  EXPECT_TRUE(
      describe(s.pipeline)
          .starts_with("2 stages of 2 chunks, 8 micro-batches of 2, split 2,3,3,4, bubble "))
      << describe(s.pipeline);
  const std::vector<Slice> parts = s.pipeline.slices();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[2].begin, s.graph.cuts()[5]);
  EXPECT_EQ(parts[2].end, s.graph.cuts()[8]);
}

TEST(PipelineOptions, WithoutThemThereIsOneMicroBatchAndOnePart) {
  const auto s = setup_of(small_vit_run + "--batch 16", 2);
  EXPECT_EQ(s.options.micro_batches, 1);
  EXPECT_EQ(s.replicas, 2);
  EXPECT_EQ(s.pipeline.slices().at(0).end, int(s.graph.nodes().size()));
  EXPECT_EQ(describe(s.pipeline), "");
  EXPECT_EQ(setup_of(small_vit_run + "--batch 16 --micro-batches 4", 1).pipeline.micro_batch, 4);
}

TEST(PipelineOptions, MicroBatchesAreFourForEachStageIfTheyCan) {
  EXPECT_EQ(default_micro_batches({.images = 64, .stages = 4}), 16);
  EXPECT_EQ(default_micro_batches({.images = 40, .stages = 4}), 10);
  EXPECT_EQ(default_micro_batches({.images = 40, .stages = 4, .chunks = 2}), 8);
  EXPECT_EQ(default_micro_batches({.images = 32, .stages = 4, .mixing = true}), 16);
  EXPECT_EQ(default_micro_batches({.images = 24, .stages = 4, .mixing = true}), 12);
  EXPECT_EQ(default_micro_batches({.images = 8, .stages = 4, .batch_norm = true}), 4);
  EXPECT_EQ(default_micro_batches({.images = 7, .stages = 1}), 1);
}

TEST(PipelineOptions, ARecipesBatchIsRounded) {
  EXPECT_EQ(
      *setup_of("vit_tiny --image-size 32 --patch-size 16 --micro-batches 3", 1).options.batch % 3,
      0);
}

TEST(PipelineOptions, MistakesNameTheNumbersThatWouldDo) {
  const std::string vit = small_vit_run;
  EXPECT_EQ(refusal(vit + "--pipeline 4", 6),
            "-n 6 is not a multiple of --pipeline 4; try -n 4 or 8");
  EXPECT_EQ(refusal(vit + "--pipeline 2 --batch 16 --micro-batches 3", 2),
            "--micro-batches 3: doesn't divide the local batch of 16; try 2 or 4");
  EXPECT_EQ(refusal(vit + "--batch 16 --micro-batches 32", 1),
            "--micro-batches 32: doesn't divide the local batch of 16; try 16");
  EXPECT_EQ(refusal(vit + "--pipeline 4 --chunks 2 --batch 48 --micro-batches 6", 4),
            "--micro-batches 6: with --chunks it must be a multiple of --pipeline 4; try 4 or 8");
  EXPECT_EQ(
      refusal(vit + "--pipeline 3 --chunks 2 --batch 16 --micro-batches 4", 3),
      "--micro-batches 4: with --chunks it must be a multiple of --pipeline 3; try --local-batch "
      "24 --micro-batches 12");
  EXPECT_EQ(refusal(vit + "--mixup 0.2 --batch 12 --micro-batches 4", 1),
            "--micro-batches 4: leaves 3 images each, and they are mixed in pairs; try 3 or 6");
  EXPECT_EQ(refusal("resnet34 --image-size 64 --batch 8 --micro-batches 8", 1),
            "--micro-batches 8: leaves 1 image each, too few for batch norm's statistics; try 4");
  EXPECT_EQ(refusal(vit + "--chunks 2", 1),
            "--chunks 2 needs --pipeline; try --pipeline 2 or --chunks 1");
  EXPECT_EQ(refusal(vit + "--partition 5,7", 1),
            "--partition 5,7 needs --pipeline; try --pipeline 2, or leave it out");
  EXPECT_EQ(refusal(vit + "--pipeline 13 --batch 13", 13),
            "--pipeline 13: more than the model's 12 blocks; try --pipeline 12");
  EXPECT_EQ(refusal(vit + "--pipeline 4 --chunks 4 --batch 16", 4),
            "--pipeline 4 --chunks 4: more than the model's 12 blocks; try --pipeline 3");
  EXPECT_EQ(refusal(vit + "--pipeline 2 --partition 6,7", 2),
            "--partition 6,7: adds up to 13 blocks, the model has 12; try 6,6");
  EXPECT_EQ(refusal(vit + "--pipeline 2 --partition 4,4,4", 2),
            "--partition 4,4,4: 3 parts, not the 2 that --pipeline and --chunks make; try 6,6");
  for (const char* text : {"even", "6,", "6,0", "-1,13", "6;6", "1.5,2"})
    EXPECT_EQ(refusal(vit + "--pipeline 2 --partition " + text, 2),
              "--partition " + std::string(text) +
                  ": must be uniform, balanced, cost or the blocks of each part, like 6,6");
}

}  // namespace
}  // namespace bv::test
