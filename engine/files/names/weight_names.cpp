#include "engine/files/names/weight_names.h"

#include <algorithm>
#include <tuple>

namespace bv {
namespace {

constexpr size_t longest_prefix = 200;

}  // namespace

PrefixVotes::PrefixVotes(const std::vector<ParameterShape>& model) {
  for (const ParameterShape& p : model) {
    model_[p.name] = &p;
    longest_ = std::max(longest_, p.name.size());
  }
}

void PrefixVotes::add(std::string_view name, std::span<const int64_t> shape) {
  const size_t first = name.size() - std::min(name.size(), longest_),
               last = std::min(name.size(), longest_prefix);
  for (size_t at = first; at < last; ++at) {
    if (at > 0 && name[at - 1] != '.') continue;
    const auto found = model_.find(name.substr(at));
    if (found == model_.end()) continue;
    const std::string_view prefix = name.substr(0, at);
    auto vote = votes_.find(prefix);
    if (vote == votes_.end())
      vote =
          votes_.try_emplace(std::string(prefix), PrefixVote{.prefix = std::string(prefix)}).first;
    ++vote->second.names;
    vote->second.shapes += std::ranges::equal(shape, found->second->shape);
  }
}

std::vector<PrefixVote> PrefixVotes::best() const {
  const auto rank = [](const PrefixVote& v) { return std::tuple(v.shapes, v.names); };
  std::vector<PrefixVote> best;
  for (const auto& [prefix, vote] : votes_) {
    if (2 * vote.names <= model_.size()) continue;
    if (!best.empty() && rank(vote) > rank(best[0])) best.clear();
    if (best.empty() || rank(vote) == rank(best[0])) best.push_back(vote);
  }
  return best;
}

}  // namespace bv
