#include "engine/pipeline/partition.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace bv {
namespace {

// The best cuts of weights [0, i) into p parts, for every i and p.
class Splits {
 public:
  using Fold = double (*)(double all, double sum);
  // The cost of p parts is `fold`(cost of the first p - 1, sum of the last); no part may exceed
  // `largest`.
  Splits(std::span<const double> weights, int parts, double largest, Fold fold) {
    const size_t n = weights.size(), P = static_cast<size_t>(parts);
    std::vector<double> before(n + 1);
    std::partial_sum(weights.begin(), weights.end(), before.begin() + 1);
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector least(P + 1, std::vector(n + 1, never));
    begins_.assign(P + 1, std::vector<size_t>(n + 1));
    least[0][0] = 0;
    for (size_t p = 1; p <= P; ++p)
      for (size_t i = p; i <= n; ++i)
        for (size_t from = p - 1; from < i; ++from) {
          const double sum = before[i] - before[from];
          if (sum > largest) continue;
          if (const double all = fold(least[p - 1][from], sum); all < least[p][i])
            least[p][i] = all, begins_[p][i] = from;
        }
    least_ = least[P][n];
  }
  double least() const { return least_; }
  std::vector<int> counts() const {
    std::vector<int> counts(begins_.size() - 1);
    size_t end = begins_[0].size() - 1;
    for (size_t p = counts.size(); p > 0; --p) {
      counts[p - 1] = static_cast<int>(end - begins_[p][end]);
      end = begins_[p][end];
    }
    return counts;
  }

 private:
  std::vector<std::vector<size_t>> begins_;  // [p][i]: the start of the last of p parts of [0, i)
  double least_;
};

std::vector<int> uniform_counts(int blocks, int parts) {
  std::vector<int> counts(static_cast<size_t>(parts), blocks / parts);
  for (int i = parts - blocks % parts; i < parts; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

void check_list(const std::vector<int>& counts, int blocks, int parts) {
  const int sum = std::accumulate(counts.begin(), counts.end(), 0);
  const bool right_parts = counts.size() == static_cast<size_t>(parts);
  if (right_parts && sum == blocks) return;
  const std::string given = "--partition " + list_of(counts) + ": ";
  const std::string fitting = "; try " + list_of(uniform_counts(blocks, parts));
  if (!right_parts)
    throw UserError(given + counted(static_cast<int64_t>(counts.size()), "part") + ", not the " +
                    std::to_string(parts) + " that --pipeline and --chunks make" + fitting);
  throw UserError(given + "adds up to " + counted(sum, "block") + ", the model has " +
                  std::to_string(blocks) + fitting);
}

}  // namespace

std::string list_of(std::span<const int> counts) {
  std::vector<std::string> words;
  for (const int n : counts) words.push_back(std::to_string(n));
  return join(words, ",");
}

std::vector<BlockCost> blocks_of(const Graph& graph, Kernels& kernels) {
  std::vector<BlockCost> blocks;
  const std::vector<int>& cuts = graph.cuts();
  const Slice whole{0, static_cast<int>(graph.nodes().size())};
  for (size_t i = 0; i < cuts.size(); ++i) {
    const Slice slice{i == 0 ? 0 : cuts[i],
                      i + 1 == cuts.size() ? static_cast<int>(graph.nodes().size()) : cuts[i + 1]};
    NodeUse forward, backward;
    for (int n = slice.begin; n < slice.end; ++n) {
      const Node& node = graph.nodes()[static_cast<size_t>(n)];
      node.forward({.planning = &forward, .graph = &graph, .kernels = &kernels});
      graph.backward(n, whole)({.planning = &backward, .graph = &graph, .kernels = &kernels});
    }
    blocks.push_back({.nodes = slice,
                      .parameters = static_cast<double>(graph.parameter_count(slice)),
                      .forward = forward.flops,
                      .backward = backward.flops});
  }
  return blocks;
}

std::vector<int> min_largest_sum(std::span<const double> weights, int parts) {
  constexpr double any = std::numeric_limits<double>::infinity();
  const double largest = Splits(weights, parts, any, [](double all, double sum) {
                           return std::max(all, sum);
                         }).least();
  // Many splits may share the smallest largest sum: choose the most even one, by sum of squares.
  return Splits(weights, parts, largest, [](double all, double sum) { return all + sum * sum; })
      .counts();
}

std::vector<int> partition(std::span<const BlockCost> blocks, int parts, const Partition& how) {
  const int count = static_cast<int>(blocks.size());
  if (how.kind == Partition::list) check_list(how.blocks, count, parts);
  if (count < parts)
    throw UserError(std::to_string(parts) + " parts of a model of " + counted(count, "block"));
  if (how.kind == Partition::list) return how.blocks;
  if (how.kind == Partition::uniform) return uniform_counts(count, parts);
  std::vector<double> weights;
  for (const BlockCost& b : blocks)
    weights.push_back(how.kind == Partition::balanced ? b.parameters : b.forward + b.backward);
  return min_largest_sum(weights, parts);
}

std::vector<BlockCost> parts_of(std::span<const BlockCost> blocks, std::span<const int> counts) {
  std::vector<BlockCost> parts;
  size_t block = 0;
  for (const int count : counts) {
    BlockCost part{.nodes = {blocks[block].nodes.begin, blocks[block].nodes.begin}};
    for (int i = 0; i < count; ++i, ++block) {
      part.nodes.end = blocks[block].nodes.end;
      part.parameters += blocks[block].parameters;
      part.forward += blocks[block].forward;
      part.backward += blocks[block].backward;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace bv
