// The memory plans of a pipeline's stages: --plan prints what each process allocates, and what
// would fit.
#include "engine/run/plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/engine/pipeline/setup_of.h"
#include "tests/models/counting_backend.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string vit = "vit_tiny --image-size 32 --patch-size 8 --batch 24 ";
const std::string resnet = "resnet34 --image-size 32 --batch 24 ";

size_t largest_peak(const Setup& s) {
  const auto backend = make_cpu_backend(1, false);
  const std::vector<MemoryPlan> plans = stage_plans(s, *backend);
  return std::ranges::max_element(plans, {}, &MemoryPlan::peak)->peak();
}

std::string what_fits(const Setup& s, size_t bytes) {
  const auto backend = make_cpu_backend(1, false);
  return bv::what_fits(s, *backend, {.bytes = bytes, .shared = false});
}

TEST(PipelinePlans, TheirPeakIsWhatEachStageAllocates) {
  struct Case {
    std::string words;
    int world;
  };
  for (const auto& [words, world] :
       {Case{vit + "--pipeline 2 --micro-batches 4", 2},
        Case{vit + "--pipeline 3 --micro-batches 6 --chunks 2", 3},
        Case{vit + "--pipeline 4 --micro-batches 4 --recompute blocks --ema 0.9", 8},
        Case{resnet + "--pipeline 3 --micro-batches 6 --optimizer sgd", 3}}) {
    SCOPED_TRACE(words);
    const auto s = setup_of(words, world);
    CountingBackend planning;  // the backend made last sets the number of threads
    const std::vector<MemoryPlan> plans = stage_plans(s, planning);
    EXPECT_EQ(planning.allocated, 0u);
    ASSERT_EQ(int(plans.size()), s.pipeline.shape.stages);
    for (int stage = 0; stage < int(plans.size()); ++stage) {
      const auto own = for_rank(setup_of(words, world), stage * s.replicas);
      CountingBackend backend;
      Trainer trainer(backend, nullptr, own.graph, own.trainer);
      trainer.allocate();
      EXPECT_EQ(trainer.plan().peak(), plans[size_t(stage)].peak()) << "stage " << stage;
      EXPECT_EQ(backend.allocated, plans[size_t(stage)].peak()) << "stage " << stage;
    }
  }
}

TEST(PipelinePlans, ListTheStages) {
  const auto s = setup_of(
      vit + "--pipeline 2 --chunks 2 --micro-batches 4 --partition 2,3,3,4 --classes 10", 2);
  const auto backend = make_cpu_backend(1, false);
  std::ostringstream out;
  print_stages(out, s, stage_plans(s, *backend));
  const std::string text = out.str();
  EXPECT_TRUE(
      text.starts_with("pipeline: 2 stages of 2 chunks, 4 micro-batches of 6, split 2,3,3,4"))
      << text;
  EXPECT_TRUE(
      has(text, "stage  blocks          parameters  in flight     activations         peak\n"));
  EXPECT_TRUE(has(text, "    0  0-1, 5-7 "));
  EXPECT_TRUE(has(text, "    1  2-4, 8-11 "));
  EXPECT_TRUE(has(text, "  4, 2  "));
  size_t parameters = 0, read = 0;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with("    ")) read += std::stoul(line.substr(22, 11));
  for (const ParameterInfo& p : s.graph.parameters()) parameters += p.count();
  EXPECT_EQ(read, parameters);
}

TEST(PipelinePlans, NameTheSmallestNumbersThatFit) {
  const auto two = setup_of(vit + "--pipeline 2 --micro-batches 4", 2);
  const size_t now = largest_peak(two);
  const size_t of_three = largest_peak(setup_of(vit + "--pipeline 3 --micro-batches 4", 3));
  const size_t of_six = largest_peak(setup_of(vit + "--pipeline 2 --micro-batches 6", 2));
  ASSERT_LT(of_three, now);
  ASSERT_LT(of_six, now);
  EXPECT_TRUE(has(what_fits(two, of_three), " -n 3 --pipeline 3 takes " + format_bytes(of_three)));
  EXPECT_TRUE(has(what_fits(two, of_six), " --micro-batches 6 takes " + format_bytes(of_six)));
  EXPECT_TRUE(has(what_fits(two, of_six - 1), " --micro-batches 8 takes "));
  EXPECT_TRUE(has(what_fits(two, of_three - 1), " -n 4 --pipeline 4 takes "));
  EXPECT_EQ(what_fits(two, 1 << 20), "; no batch fits");
}

class PlanProgram : public ProgramTest {};

TEST_F(PlanProgram, StartsNothing) {
  const Finished end = go("-n 4 " + vit + "--data synthetic --plan --pipeline 2 --micro-batches 4");
  EXPECT_TRUE(has(end.output, "on 4 processes (12 each), fp32; cpu"));
  EXPECT_TRUE(has(end.output,
                  "\npipeline: 2 stages x 2 replicas, 4 micro-batches of 3, cost split "
                  "6,6, bubble "));
  EXPECT_TRUE(has(end.output, "\n    1  6-11 "));
  EXPECT_EQ(end.errors, "");
}

}  // namespace
}  // namespace bv::test
