// The sets of built-in images, by name.
#pragma once
#include <cstdint>

namespace bv {

// shapes: motifs of other classes lie over an image's mosaic. mosaics: no shapes and less noise,
// solved within an epoch.
enum class BuiltIn : uint8_t { shapes, mosaics };

}  // namespace bv
