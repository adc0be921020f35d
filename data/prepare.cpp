#include "data/prepare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "data/augment/augment.h"
#include "data/augment/policy.h"

namespace bv {

namespace {

// Pixel (y, x) of out [size, size, 3] is (y + top, x + left) of the image, where it has one.
void copy_window(const Image& image, int top, int left, int size, uint8_t* out) {
  const int begin = std::max(0, -left), end = std::min(size, image.width - left);
  if (begin >= end) return;
  for (int y = std::max(0, -top); y < std::min(size, image.height - top); ++y)
    std::memcpy(out + 3 * (size_t(y) * static_cast<size_t>(size) + static_cast<size_t>(begin)),
                &image.pixels[3 * (size_t(y + top) * static_cast<size_t>(image.width) +
                                   static_cast<size_t>(begin + left))],
                3 * static_cast<size_t>(end - begin));
}

}  // namespace

std::shared_ptr<const Image> ImageCache::find(int64_t index) const {
  if (limit_ == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  return images_.empty() ? nullptr : images_[index];
}

void ImageCache::add(int64_t index, std::shared_ptr<const Image> image) {
  if (limit_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (images_.empty() || images_[index]) return;
  bytes_ += image->pixels.size() + sizeof(Image);
  if (bytes_ <= limit_) {
    images_[index] = std::move(image);
  } else {
    images_ = {};
    bytes_ = 0;
  }
}

size_t ImageCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

Preprocessor::Preprocessor(const Dataset& data, const LoaderOptions& options, bool train)
    : data_(data),
      options_(options),
      train_(train),
      crop_(train ? options.crop.train : TrainCrop::none),
      size_(stored_size(options.kind, options.crop, options.image_size, train)),
      cache_(options.kind == DataKind::synthetic ? 0 : data.size(),
             options.kind == DataKind::synthetic ? 0 : options.cache_bytes) {}

// Always a size that suits the smallest crop, since a batch's pixels must not depend on the cache.
int Preprocessor::side_to_decode() const {
  if (crop_ == TrainCrop::pad_if_needed) return 0;
  if (crop_ != TrainCrop::random_resized && options_.crop.mode == CropMode::pad) return 0;
  if (crop_ == TrainCrop::random_resized)
    return min_side_for_random_crop(options_.image_size, options_.crop);
  return static_cast<int>(options_.image_size / options_.crop.pct);
}

// Caches the final image or, before a random crop of it, the decoded one.
std::shared_ptr<const Image> Preprocessor::cached_image(int64_t index, Resizer& resizer) {
  if (auto cached = cache_.find(index)) return cached;
  Image decoded = data_.image(index, side_to_decode());
  const bool as_decoded = crop_ == TrainCrop::random_resized || crop_ == TrainCrop::pad_if_needed;
  auto image = as_decoded ? std::make_shared<const Image>(std::move(decoded))
                          : final_image(std::move(decoded), resizer);
  cache_.add(index, image);
  return image;
}

std::shared_ptr<const Image> Preprocessor::final_image(Image image, Resizer& resizer) const {
  const int size = options_.image_size;
  const auto interpolation = options_.crop.interpolation;
  const auto [from, top, left, height, width] =
      centre_crop(image.height, image.width, size, options_.crop);
  if (from.height == size && from.width == size && image.height == size && image.width == size)
    return std::make_shared<const Image>(std::move(image));
  auto result = std::make_shared<Image>(black_image(size, size));
  std::vector<uint8_t>& pixels = result->pixels;
  if (height == size && width == size) {
    resizer.run(image, from, size, size, pixels.data(), interpolation);
    return result;
  }
  Image inner = black_image(height, width);
  resizer.run(image, from, height, width, inner.pixels.data(), interpolation);
  if (options_.crop.mode == CropMode::border)
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = options_.augment.mean_color[i % 3];
  copy_window(inner, -top, -left, size, pixels.data());
  return result;
}

// The window is cut here from pictures of any size, and left to the device where all have one.
void Preprocessor::cut_window(const Image& image, const AugmentKey& key,
                              const PreparedRow& out) const {
  const auto [top, left] =
      random_window(key, image.height, image.width, options_.image_size, options_.crop);
  if (image.height == size_ && image.width == size_) {
    std::memcpy(out.pixels, image.pixels.data(), image.pixels.size());
    out.crop = {.top = static_cast<int16_t>(top), .left = static_cast<int16_t>(left)};
  } else {
    std::memset(out.pixels, 0, 3 * size_t(size_) * static_cast<size_t>(size_));
    copy_window(image, top, left, size_, out.pixels);
  }
}

void Preprocessor::run(int64_t index, uint32_t epoch, Resizer& resizer, const PreparedRow& out) {
  const auto image = cached_image(index, resizer);
  const AugmentKey key{options_.seed, epoch, static_cast<uint32_t>(index)};
  const int size = options_.image_size;
  out.crop = {};
  std::ranges::fill(out.ops, ImageOp{});
  if (crop_ == TrainCrop::random_resized)
    resizer.run(*image, random_resized_crop(key, image->height, image->width, options_.crop), size,
                size, out.pixels, options_.crop.interpolation);
  else if (crop_ != TrainCrop::none)
    cut_window(*image, key, out);
  else
    std::memcpy(out.pixels, image->pixels.data(), image->pixels.size());
  if (!train_) return;
  random_flips(key, options_.crop, out.crop);
  if (out.ops.empty()) return;
  size_t layer = 0;
  for (const DrawnOperation& drawn : draw_operations(options_.augment, key, size))
    out.ops[layer++] = image_op(options_.augment, drawn, size);
}

Box Preprocessor::shown(int64_t index, uint32_t epoch) const {
  const Image image = data_.image(index, side_to_decode());
  const AugmentKey key{options_.seed, epoch, static_cast<uint32_t>(index)};
  const int size = options_.image_size;
  Box box;
  if (crop_ == TrainCrop::random_resized) {
    box = random_resized_crop(key, image.height, image.width, options_.crop);
  } else if (crop_ == TrainCrop::pad_if_needed) {
    const Window w = random_window(key, image.height, image.width, size, options_.crop);
    box = {double(w.top), double(w.left), double(size), double(size)};
  } else {
    // The placed part is `placed.height` pixels of the result high: one of them is `down` high.
    const Placement placed = centre_crop(image.height, image.width, size, options_.crop);
    const double down = placed.from.height / placed.height;
    const double right = placed.from.width / placed.width;
    const Window w = crop_ == TrainCrop::padded
                         ? random_window(key, size, size, size, options_.crop)
                         : Window{0, 0};
    box = {.top = placed.from.top + (w.top - placed.top) * down,
           .left = placed.from.left + (w.left - placed.left) * right,
           .height = size * down,
           .width = size * right};
  }
  // A large JPEG is decoded at 1/2, 1/4 or 1/8 of its size.
  const Image whole = data_.image(index, 0);
  const double scale = std::exp2(std::round(std::log2(double(whole.height) / image.height)));
  return {box.top * scale, box.left * scale, box.height * scale, box.width * scale};
}

}  // namespace bv
