#include "data/prepare.h"

#include <cstring>
#include <utility>

#include "data/augment.h"

namespace bv {

// Black pixels around a CIFAR image, after resizing, for random crops.
constexpr int cifar_padding = 4;

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
      augment_(train && options.augment),
      random_crop_(augment_ && options.kind == DataKind::photos),
      cache_(options.kind == DataKind::synthetic ? 0 : data.size(),
             options.kind == DataKind::synthetic ? 0 : options.cache_bytes) {}

// Caches the final image or, before a random crop, the decoded one: always at a size that suits the
// smallest crop, since a batch's pixels must not depend on the cache.
std::shared_ptr<const Image> Preprocessor::cached_image(int64_t index, Resizer& resizer) {
  if (auto cached = cache_.find(index)) return cached;
  const int size = options_.image_size;
  const auto image =
      random_crop_
          ? std::make_shared<const Image>(data_.image(index, min_side_for_random_crop(size)))
          : final_image(data_.image(index, size), resizer);
  cache_.add(index, image);
  return image;
}

std::shared_ptr<const Image> Preprocessor::final_image(Image image, Resizer& resizer) const {
  const int size = options_.image_size;
  if (image.height == size && image.width == size)
    return std::make_shared<const Image>(std::move(image));
  auto resized = std::make_shared<Image>(black_image(size, size));
  resizer.run(image, centre_square(image.height, image.width), size, size, resized->pixels.data());
  return resized;
}

void Preprocessor::run(int64_t index, uint32_t epoch, Resizer& resizer, uint8_t* out, Crop& crop) {
  const auto image = cached_image(index, resizer);
  const AugmentKey key{options_.seed, epoch, static_cast<uint32_t>(index)};
  const int size = options_.image_size;
  crop = {};
  if (random_crop_) {
    const Box box = random_resized_crop(key, image->height, image->width);
    resizer.run(*image, box, size, size, out);
    crop.flip = random_flip(key);
    return;
  }
  std::memcpy(out, image->pixels.data(), image->pixels.size());
  if (augment_ && options_.kind == DataKind::cifar) crop = random_padded_crop(key, cifar_padding);
}

}  // namespace bv
