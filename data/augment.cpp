#include "data/augment.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace bv {
namespace {

constexpr double min_area = 0.08, min_aspect = 3.0 / 4, largest_aspect = 4.0 / 3;
constexpr uint32_t tries = 10;

Philox4 draw(const AugmentKey& key, uint32_t what) {
  return philox(key.seed, what, key.index, key.epoch, random_augment);
}

// A whole number from 0 to last.
int up_to(uint32_t word, int last) {
  return static_cast<int>(uint64_t{word} * (static_cast<uint64_t>(last) + 1) >> 32);
}

}  // namespace

Box random_resized_crop(const AugmentKey& key, int height, int width) {
  const double area = double(height) * width;
  const double low = std::log(min_aspect), high = std::log(largest_aspect);
  for (uint32_t i = 0; i < tries; ++i) {
    const Philox4 random = draw(key, i);
    const double part = area * (min_area + (1 - min_area) * uniform(random.at[0]));
    const double aspect = std::exp(low + (high - low) * uniform(random.at[1]));
    const int w = static_cast<int>(std::lround(std::sqrt(part * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(part / aspect)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {.top = double(up_to(random.at[2], height - h)),
            .left = double(up_to(random.at[3], width - w)),
            .height = double(h),
            .width = double(w)};
  }
  const double h = std::min<double>(height, std::round(width / min_aspect));
  const double w = std::min<double>(width, std::round(height * largest_aspect));
  return {.top = std::floor((height - h) / 2),
          .left = std::floor((width - w) / 2),
          .height = h,
          .width = w};
}

int min_side_for_random_crop(int image_size) {
  return static_cast<int>(std::ceil(image_size / std::sqrt(min_area * min_aspect)));
}

Box centre_square(int height, int width) {
  const double side = std::min(height, width);
  return {.top = (height - side) / 2, .left = (width - side) / 2, .height = side, .width = side};
}

bool random_flip(const AugmentKey& key) { return draw(key, tries).at[0] >> 31; }

Crop random_padded_crop(const AugmentKey& key, int padding) {
  const Philox4 random = draw(key, tries);
  return {.top = static_cast<int16_t>(up_to(random.at[1], 2 * padding) - padding),
          .left = static_cast<int16_t>(up_to(random.at[2], 2 * padding) - padding),
          .flip = random_flip(key)};
}

}  // namespace bv
