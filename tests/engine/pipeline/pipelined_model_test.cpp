// A stage's part of a model: parameters in whole norm blocks, memory, batches.
#include "engine/pipeline/pipelined_model.h"

#include <gtest/gtest.h>

#include "data/loader.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

// Part i of `count`, cut between blocks.
Slice part_of(const Graph& graph, int count, int i) {
  const auto cut = [&](int part) {
    const size_t blocks = graph.cuts().size(), at = static_cast<size_t>(part) * blocks;
    if (part == 0) return 0;
    return part == count ? static_cast<int>(graph.nodes().size())
                         : graph.cuts()[at / static_cast<size_t>(count)];
  };
  return {cut(i), cut(i + 1)};
}

// Offset of the parameter in the whole model's arena.
size_t in_the_model(const Graph& part, const ParameterInfo& own) {
  const Segment* in = nullptr;
  for (const Segment& s : part.segments())
    if (s.begin <= own.offset && own.offset < s.end) in = &s;
  return in ? own.offset - in->begin + in->norm_block * GradientSquares::norm_block : 0;
}

TEST(ModelParts, HaveTheModelsParametersInTheModelsStretches) {
  for (const Graph& whole :
       {small_vit(6), small_resnet(square_input(2, 32, 1), DType::fp32, small_classes)}) {
    for (const int count : {1, 2, 3}) {
      if (count > static_cast<int>(whole.cuts().size())) continue;
      std::vector<int> owners(whole.parameters().size()), buffer_owners(whole.buffers().size());
      for (int i = 0; i < count; ++i) {
        Graph part = whole;
        const Slice slice = part_of(whole, count, i);
        part.finish({&slice, 1});
        ASSERT_EQ(part.segments().size(), 1u);
        const Segment& own = part.segments()[0];
        EXPECT_EQ(own.end, part.arena_count());
        EXPECT_EQ(part.norm_blocks(), whole.norm_blocks());
        for (size_t p = 0; p < owners.size(); ++p) {
          const ParameterInfo& mine = part.parameters()[p];
          if (!mine.owned()) continue;
          ++owners[p];
          EXPECT_EQ(in_the_model(part, mine), whole.parameters()[p].offset) << mine.name;
        }
        for (size_t b = 0; b < buffer_owners.size(); ++b)
          buffer_owners[b] += part.buffers()[b].owned();
        EXPECT_EQ(part.ready_after(slice.begin), part.arena_count());
      }
      EXPECT_EQ(owners, std::vector<int>(owners.size(), 1));
      EXPECT_EQ(buffer_owners, std::vector<int>(buffer_owners.size(), 1));
    }
  }
}

TEST(ModelParts, OfTwoChunksLieOneAfterTheOtherTheLastFirst) {
  const Graph whole = small_vit(6);
  Graph part = whole;
  const Slice slices[] = {part_of(whole, 3, 0), part_of(whole, 3, 2)};
  part.finish(slices);
  ASSERT_EQ(part.segments().size(), 2u);
  EXPECT_EQ(part.segments()[0].norm_block, 0u);
  EXPECT_EQ(part.segments()[1].begin, part.segments()[0].end);
  EXPECT_EQ(part.segments()[1].end, part.arena_count());
  EXPECT_LT(part.arena_count(), whole.arena_count());
  for (size_t p = 0; p < whole.parameters().size(); ++p)
    if (const ParameterInfo& mine = part.parameters()[p]; mine.owned()) {
      EXPECT_EQ(in_the_model(part, mine), whole.parameters()[p].offset) << mine.name;
    }
  part.finish();
  EXPECT_EQ(part.arena_count(), whole.arena_count());
}

TEST(ModelParts, BeginAndEndAtCuts) {
  Graph graph = small_vit(2);
  const int within = graph.cuts()[1] + 1, end = static_cast<int>(graph.nodes().size());
  for (const Slice& slice : {Slice{0, within}, Slice{within, end}, Slice{0, 0}})
    EXPECT_THROW(graph.finish({&slice, 1}), std::logic_error) << slice.begin;
}

// A slice's last block may have several micro-batches in flight, except in the model's last slice.
TEST(ModelParts, RecomputeTheirLastBlockUnlessItIsTheModels) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = small_vit(6);
  for (const int i : {0, 1}) {
    const Slice slice = part_of(graph, 2, i);
    const Layout layout =
        plan_stage(graph, backend->kernels(), slice.begin, slice.end, Passes::recompute);
    EXPECT_EQ(layout.recomputes.size(), i == 0 ? 3u : 2u);
  }
}

// Chunks share scratch memory but not saved tensors.
TEST(ModelParts, PlanTheMemoryOfTheirChunks) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = small_vit(8);
  PipelinePlan plan{.shape = {2, 2, 4}, .grid = {.stages = 2}};
  for (int i = 0; i < 4; ++i) plan.parts.push_back(part_of(graph, 4, i));
  const PipelinedModel part(*backend, graph, plan, Passes::both, nullptr);
  size_t saved = 0, scratch = 0;
  const std::vector<int> in_flight = slots(plan.shape, 0);
  for (int chunk = 0; chunk < 2; ++chunk) {
    const Layout& layout = part.chunk(chunk).layout();
    saved += layout.saved_bytes * static_cast<size_t>(in_flight[static_cast<size_t>(chunk)]);
    scratch = std::max(scratch, layout.scratch_bytes);
  }
  EXPECT_EQ(part.saved_bytes(), saved);
  EXPECT_EQ(part.scratch_bytes(), scratch);
}

TEST(ModelParts, KnowABatchsPlaceWithoutItsImages) {
  const DataSets sets = open_dataset({.path = "", .image_size = 16});
  for (const bool train : {true, false}) {
    const Dataset& data = train ? *sets.train : *sets.val;
    LoaderOptions options{
        .kind = sets.kind, .image_size = 16, .local_batch = 7, .rank = 1, .ranks = 2};
    Loader with(data, options, train);
    options.images = false;
    Loader without(data, options, train);
    ASSERT_EQ(with.batches_per_epoch(), without.batches_per_epoch());
    with.start(0, train ? 1 : 0), without.start(0, train ? 1 : 0);
    for (int i = 0; i < (train ? 5 : with.batches_per_epoch()); ++i) {
      const Batch &full = with.next(), &bare = without.next();
      EXPECT_EQ(bare.count, full.count);
      EXPECT_EQ(bare.position, full.position);
      EXPECT_EQ(bare.images, nullptr);
      EXPECT_EQ(bare.labels, nullptr);
    }
  }
}

}  // namespace
}  // namespace bv::test
