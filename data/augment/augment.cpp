#include "data/augment/augment.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace bv {
namespace {

constexpr uint32_t tries = 10;

Philox4 draw(const AugmentKey& key, uint32_t what) {
  return philox(key.seed, what, key.index, key.epoch, random_augment);
}

// True with probability p.
bool happens(uint32_t word, double p) { return double{uniform(word)} >= 1 - p; }

// A whole number from 0 to last.
int up_to(uint32_t word, int last) {
  return static_cast<int>(uint64_t{word} * (static_cast<uint64_t>(last) + 1) >> 32);
}

}  // namespace

Box random_resized_crop(const AugmentKey& key, int height, int width, const Cropping& c) {
  const double area = double(height) * width;
  const double low = std::log(c.ratio[0]), high = std::log(c.ratio[1]);
  for (uint32_t i = 0; i < tries; ++i) {
    const Philox4 random = draw(key, i);
    const double part = area * (c.scale[0] + (c.scale[1] - c.scale[0]) * uniform(random.at[0]));
    const double aspect = std::exp(low + (high - low) * uniform(random.at[1]));
    const int w = static_cast<int>(std::lround(std::sqrt(part * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(part / aspect)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    return {.top = double(up_to(random.at[2], height - h)),
            .left = double(up_to(random.at[3], width - w)),
            .height = double(h),
            .width = double(w)};
  }
  const double h = std::clamp<double>(std::round(width / c.ratio[0]), 1, height);
  const double w = std::clamp<double>(std::round(height * c.ratio[1]), 1, width);
  return {.top = std::floor((height - h) / 2),
          .left = std::floor((width - w) / 2),
          .height = h,
          .width = w};
}

Placement centre_crop(int height, int width, int size, const Cropping& c) {
  const double resized = std::floor(size / c.pct);
  const double shorter = std::min(height, width), longer = std::max(height, width);
  if (c.mode == CropMode::pad) {
    const int h = std::min(height, size), w = std::min(width, size);
    return {.from = {.top = double((height - h) / 2),
                     .left = double((width - w) / 2),
                     .height = double(h),
                     .width = double(w)},
            .top = (size - h) / 2,
            .left = (size - w) / 2,
            .height = h,
            .width = w};
  }
  if (c.mode != CropMode::border) {
    const bool squash = c.mode == CropMode::squash;
    const double h = (squash ? height : shorter) * (size / resized);
    const double w = (squash ? width : shorter) * (size / resized);
    return {.from = {.top = (height - h) / 2, .left = (width - w) / 2, .height = h, .width = w},
            .top = 0,
            .left = 0,
            .height = size,
            .width = size};
  }
  Placement place{};
  const auto along = [&](int length, double& begin, double& part, int& to, int& count) {
    const int whole = std::max(1, static_cast<int>(std::lround(length * resized / longer)));
    count = std::min(whole, size);
    to = (size - count) / 2;
    part = double(length) * count / whole;
    begin = (length - part) / 2;
  };
  along(height, place.from.top, place.from.height, place.top, place.height);
  along(width, place.from.left, place.from.width, place.left, place.width);
  return place;
}

Window random_window(const AugmentKey& key, int height, int width, int size, const Cropping& c) {
  const Philox4 random = draw(key, tries);
  const auto along = [&](uint32_t word, int length) {
    const int padding = c.train == TrainCrop::padded ? c.padding : std::max(0, size - length);
    return up_to(word, length + 2 * padding - size) - padding;
  };
  return {.top = along(random.at[1], height), .left = along(random.at[2], width)};
}

void random_flips(const AugmentKey& key, const Cropping& c, Crop& crop) {
  const Philox4 random = draw(key, tries);
  crop.flip = happens(random.at[0], c.hflip);
  crop.upside_down = happens(random.at[3], c.vflip);
}

}  // namespace bv
