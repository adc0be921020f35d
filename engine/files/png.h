// Writes PNG pictures.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bv {

// A PNG file of pixels [height, width, 3].
std::vector<std::byte> encode_png(const uint8_t* pixels, int height, int width);

}  // namespace bv
