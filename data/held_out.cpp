#include "data/held_out.h"

#include <algorithm>
#include <cmath>

#include "data/sources.h"

namespace bv {
namespace {

// An image's random rank within its class; the lowest ranks are held out.
uint64_t draw(const std::string& class_name, const std::string& name, uint64_t seed) {
  const uint64_t print = Fingerprint("split", {class_name, name}).value();
  const Philox4 words = philox(seed, static_cast<uint32_t>(print),
                               static_cast<uint32_t>(print >> 32), 0, random_split);
  return uint64_t{words.at[0]} << 32 | words.at[1];
}

}  // namespace

std::vector<bool> held_out(const std::string& class_name, const std::vector<std::string>& names,
                           double fraction, uint64_t seed) {
  if (names.empty()) return {};
  const auto count = static_cast<int64_t>(names.size());
  std::vector<std::pair<uint64_t, int64_t>> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.emplace_back(draw(class_name, names[i], seed), i);
  std::ranges::sort(drawn);
  int64_t held = std::llround(fraction * double(count));
  if (fraction > 0) held = std::clamp<int64_t>(held, count > 1 ? 1 : 0, count - 1);
  std::vector<bool> in_val(count);
  for (int64_t i = 0; i < held; ++i) in_val[drawn[i].second] = true;
  return in_val;
}

}  // namespace bv
