#include "engine/options/options.h"

#include "engine/base/text.h"

namespace bv {

std::optional<SaveEvery> parse_save_every(std::string_view text) {
  const bool steps = text.ends_with("steps");
  if (steps) text.remove_suffix(std::string_view("steps").size());
  const auto count = parse_integer(text);
  if (!count || *count < 1) return {};
  return SaveEvery{.count = *count, .steps = steps};
}

}  // namespace bv
