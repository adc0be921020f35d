#include <algorithm>

#include "models/family.h"

namespace bv {

extern const ModelFamily vit_family, resnet_family;

std::span<const ModelFamily* const> families() {
  static constexpr const ModelFamily* all[] = {&vit_family, &resnet_family};
  return all;
}

const ModelFamily* find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &ModelFamily::name);
  return found == families().end() ? nullptr : *found;
}

}  // namespace bv
