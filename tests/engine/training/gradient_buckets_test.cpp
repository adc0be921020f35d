// How gradients are cut into buckets.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/training/gradient_sync.h"
#include "tests/models/small_resnet.h"
#include "tests/models/small_vit.h"
#include "tests/square_input.h"

namespace bv::test {
namespace {

constexpr size_t unit = OptimizerUpdate::decay_chunk, huge = size_t{1} << 40;

std::vector<Graph> graphs() {
  std::vector<Graph> all;
  all.push_back(small_vit(2));
  all.push_back(small_resnet(square_input(1, 12, 1), DType::fp32, 5));
  all.push_back(build_vit({.embed_dim = 192, .depth = 12, .heads = 3}, {.classes = 10},
                          square_input(1, 32, 16),
                          DType::fp32));  // ViT-Tiny
  all.push_back(build_vit({.embed_dim = 1024, .depth = 2, .heads = 16}, {.classes = 1000},
                          square_input(1, 32, 16),
                          DType::fp32));  // two blocks of ViT-L: weights of 16 MiB
  return all;
}

class GradientBuckets : public testing::TestWithParam<size_t> {
 protected:
  const size_t bytes = GetParam();
  const size_t max = std::max(bytes / sizeof(float), unit);
  const size_t first = std::min<size_t>(max, 1 << 18);  // 1 MiB
};

TEST_P(GradientBuckets, CoverArenaAndTailInOrderAndKeepTheMaximum) {
  for (const Graph& graph : graphs()) {
    size_t end = 0;
    for (const Bucket& bucket : gradient_buckets(graph, bytes)) {
      ASSERT_EQ(bucket.begin, end);
      ASSERT_GT(bucket.end, bucket.begin);
      ASSERT_LE(bucket.end - bucket.begin, max);
      ASSERT_EQ(bucket.end % unit, 0u);
      end = bucket.end;
    }
    EXPECT_EQ(end, graph.arena_count() + Parameters::tail);
  }
}

// A bucket is no shorter than necessary: it ends with a node, and the next node would exceed the
// maximum, or it ends within a node that is larger than the maximum.
TEST_P(GradientBuckets, CloseWhereANodeEndsAndNotBeforeTheyMust) {
  for (const Graph& graph : graphs()) {
    std::vector<size_t> ends = {0};  // the ends of the nodes' parameters, then of the tail
    for (size_t node = graph.nodes().size(); node-- > 0;)
      ends.push_back(graph.ready_after(static_cast<int>(node)));
    ends.push_back(graph.arena_count() + Parameters::tail);
    for (const auto& [begin, end] : gradient_buckets(graph, bytes)) {
      if (end == ends.back()) continue;
      const auto next = std::upper_bound(ends.begin(), ends.end(), end);
      if (next[-1] == end) {
        ASSERT_GT(*next - begin, begin == 0 ? first : max)
            << "[" << begin << ", " << end << ") could have been longer";
      } else {
        ASSERT_GT(*next - next[-1], max)
            << "[" << begin << ", " << end << ") cuts a node that fits";
        ASSERT_EQ(end - begin, max / unit * unit);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bytes, GradientBuckets,
                         testing::Values(sizeof(float), 4096, 100000, 1 << 20, 25217728, huge));

// The first MiB, or the first node, is reduced early; the rest waits for the whole backward pass.
TEST(GradientBuckets, OfAHugeMaximumAreTwo) {
  for (const Graph& graph : graphs()) {
    const bool small = graph.arena_count() + Parameters::tail <= 1 << 18;
    EXPECT_EQ(gradient_buckets(graph, huge).size(), small ? 1u : 2u);
  }
}

}  // namespace
}  // namespace bv::test
