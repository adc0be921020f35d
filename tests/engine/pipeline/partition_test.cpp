// Cutting a model into parts: by blocks, parameters and flops.
#include "engine/pipeline/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/options/model_config.h"
#include "kernels/cpu/backend.h"
#include "models/vit.h"
#include "tests/messages.h"
#include "tests/models/small_vit.h"

namespace bv::test {
namespace {

using Counts = std::vector<int>;

std::vector<BlockCost> blocks(std::vector<double> parameters) {
  std::vector<BlockCost> made;
  for (const double p : parameters) {
    const int node = int(made.size());
    made.push_back(
        {.nodes = {3 * node, 3 * node + 3}, .parameters = p, .forward = 1, .backward = 2});
  }
  return made;
}

std::vector<BlockCost> resnet34_blocks() {
  const auto backend = make_cpu_backend(1, false);
  const ModelConfig m = load_model_config("resnet34");
  const Graph graph =
      m.family->build(m.sizes, {.classes = 10}, square_input(2, 64, 1), DType::fp32);
  return blocks_of(graph, backend->kernels());
}

double largest(std::span<const BlockCost> parts, double (*of)(const BlockCost&)) {
  double most = 0;
  for (const BlockCost& part : parts) most = std::max(most, of(part));
  return most;
}

TEST(Partition, UniformGivesTheRemainderToTheLastParts) {
  const auto twelve = blocks(std::vector<double>(12, 1));
  EXPECT_EQ(partition(twelve, 4, *Partition::parse("uniform")), (Counts{3, 3, 3, 3}));
  EXPECT_EQ(partition(twelve, 5, *Partition::parse("uniform")), (Counts{2, 2, 2, 3, 3}));
  EXPECT_EQ(partition(twelve, 12, *Partition::parse("uniform")), Counts(12, 1));
}

TEST(Partition, BalancedHasTheLeastLargestSum) {
  EXPECT_EQ(partition(blocks({1, 1, 1, 1, 1, 9}), 2, *Partition::parse("balanced")),
            (Counts{5, 1}));
  EXPECT_EQ(partition(blocks({9, 1, 1, 1, 1, 1}), 3, *Partition::parse("balanced")),
            (Counts{1, 2, 3}));  // the most even one with a largest sum of 9
  EXPECT_EQ(partition(blocks({1, 1, 1, 1, 1, 9}), 2, *Partition::parse("cost")), (Counts{3, 3}));
}

// Compares with all splits of a few random weights.
TEST(Partition, IsTheBestOfAllSplits) {
  const auto least = [](auto& self, std::span<const double> weights, int parts) -> double {
    if (parts == 1) return std::accumulate(weights.begin(), weights.end(), 0.);
    double best = 1e9, sum = 0;
    for (size_t i = 0; i + size_t(parts) <= weights.size(); ++i) {
      sum += weights[i];
      best = std::min(best, std::max(sum, self(self, weights.subspan(i + 1), parts - 1)));
    }
    return best;
  };
  for (uint32_t trial = 0; trial < 40; ++trial) {
    std::vector<double> weights;
    for (uint32_t i = 0; i < 9; ++i)
      weights.push_back(philox(3, i, trial, 0, random_data).at[0] % 9);
    for (int parts = 1; parts <= 9; ++parts) {
      const Counts counts = min_largest_sum(weights, parts);
      ASSERT_EQ(counts.size(), size_t(parts));
      double most = 0;
      size_t at = 0;
      for (const int count : counts) {
        ASSERT_GE(count, 1);
        double sum = 0;
        for (int i = 0; i < count; ++i) sum += weights[at++];
        most = std::max(most, sum);
      }
      ASSERT_EQ(at, weights.size());
      EXPECT_EQ(most, least(least, weights, parts));
    }
  }
}

TEST(Partition, BlocksCoverTheModel) {
  const auto backend = make_cpu_backend(1, false);
  const Graph graph = small_vit(5);
  const auto all = blocks_of(graph, backend->kernels());
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all.front().nodes.begin, 0);
  EXPECT_EQ(all.back().nodes.end, int(graph.nodes().size()));
  double parameters = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].nodes.begin, i == 0 ? 0 : graph.cuts()[i]);
    EXPECT_TRUE(i == 0 || all[i].nodes.begin == all[i - 1].nodes.end);
    parameters += all[i].parameters;
  }
  EXPECT_EQ(parameters, double(graph.parameter_count()));
  // Backward has two matrix products per product of forward; only the patches have no gradient.
  EXPECT_NEAR(all[1].backward / all[1].forward, 2, .15);
  const auto parts = parts_of(all, Counts{2, 3});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].nodes.end, graph.cuts()[2]);
  EXPECT_EQ(parts[1].nodes.end, int(graph.nodes().size()));
  EXPECT_EQ(parts[0].parameters + parts[1].parameters, parameters);
}

// A ResNet's last blocks have most of its parameters, but its first blocks take as much work.
TEST(Partition, ParametersAndCostCutAResnetElsewhere) {
  const auto all = resnet34_blocks();
  ASSERT_EQ(all.size(), 16u);
  const auto parts_by = [&](const char* how) {
    return parts_of(all, partition(all, 4, *Partition::parse(how)));
  };
  const auto parameters = [](const BlockCost& b) { return b.parameters; };
  const auto flops = [](const BlockCost& b) { return b.forward + b.backward; };
  EXPECT_LT(largest(parts_by("balanced"), parameters), largest(parts_by("uniform"), parameters));
  EXPECT_LT(largest(parts_by("cost"), flops), largest(parts_by("balanced"), flops));
  EXPECT_GT(partition(all, 4, *Partition::parse("balanced"))[0],
            partition(all, 4, *Partition::parse("cost"))[0]);
}

TEST(Partition, AListIsTakenAsItIs) {
  const auto twelve = blocks(std::vector<double>(12, 1));
  EXPECT_EQ(partition(twelve, 3, *Partition::parse("5,4,3")), (Counts{5, 4, 3}));
  EXPECT_EQ(error_of([&] { partition(twelve, 3, *Partition::parse("5,5,3")); }),
            "--partition 5,5,3: adds up to 13 blocks, the model has 12; try 4,4,4");
  EXPECT_EQ(error_of([&] { partition(twelve, 2, *Partition::parse("4,4,4")); }),
            "--partition 4,4,4: 3 parts, not the 2 that --pipeline and --chunks make; try 6,6");
}

}  // namespace
}  // namespace bv::test
