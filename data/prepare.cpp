#include "data/prepare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "data/augment/augment.h"
#include "data/augment/policy.h"

namespace bv {

namespace {

// Sets pixel (y, x) of out [size, size, 3] to pixel (y + top, x + left) of the image, if `pixels`
// has it. `at`: the region of the image that `pixels` holds.
void copy_window(const Image& pixels, const Region& at, int top, int left, int size, uint8_t* out) {
  const int begin = std::max(0, at.left - left), end = std::min(size, at.left + at.width - left);
  if (begin >= end) return;
  for (int y = std::max(0, at.top - top); y < std::min(size, at.top + at.height - top); ++y)
    std::memcpy(out + 3 * (size_t(y) * static_cast<size_t>(size) + static_cast<size_t>(begin)),
                &pixels.pixels[3 * (size_t(y + top - at.top) * static_cast<size_t>(at.width) +
                                    static_cast<size_t>(begin + left - at.left))],
                3 * static_cast<size_t>(end - begin));
}

}  // namespace

std::shared_ptr<const View> ViewCache::find(int64_t index, const RequestFn& choose) const {
  const std::lock_guard lock(mutex_);
  const auto kept = views_.find(index);
  if (kept == views_.end()) return nullptr;
  const View& any = *kept->second.front();
  const DecodeRequest wanted = choose(any.full_height, any.full_width);
  const int dct_scale = any.fixed ? any.dct_scale : dct_scale_for(wanted.shrink);
  for (const auto& view : kept->second)
    if (view->dct_scale == dct_scale) return view;
  return nullptr;
}

void ViewCache::add(int64_t index, std::shared_ptr<const View> view) {
  const std::lock_guard lock(mutex_);
  if (limit_ == 0) return;
  auto& kept = views_[index];
  for (const auto& other : kept)
    if (other->dct_scale == view->dct_scale) return;
  bytes_ += view->pixels.pixels.size() + sizeof(View);
  kept.push_back(std::move(view));
  if (bytes_ <= limit_) return;
  views_ = {};
  bytes_ = limit_ = 0;
}

bool ViewCache::open() const {
  const std::lock_guard lock(mutex_);
  return limit_ > 0;
}

size_t ViewCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

Preprocessor::Preprocessor(const Dataset& data, const LoaderOptions& options, bool train)
    : data_(data),
      options_(options),
      train_(train),
      crop_(train ? options.crop.train : TrainCrop::none),
      size_(stored_size(options.kind, options.crop, options.image_size, train)),
      cache_(options.kind == DataKind::synthetic ? 0 : options.cache_bytes) {}

// The request depends only on the box and its target size, so pixels don't depend on the cache. A
// reduced inverse DCT keeps frequencies that the filter would remove; the error is smaller if the
// filter still has to shrink the image. With a factor of 4 left to the filter, as in random crops,
// values differ by less than two levels of 255 on average.
DecodeRequest Preprocessor::to_resize(const Box& box, int height, int width) const {
  const double left_to_the_filter = crop_ == TrainCrop::random_resized ? 4 : 1.25;
  return {.part = pixels_read(box, height, width, options_.crop.interpolation),
          .shrink = std::min(box.height / height, box.width / width) / left_to_the_filter};
}

// Caches whole images, so that other crops of the image hit; this doesn't change the pixels.
std::shared_ptr<const View> Preprocessor::view(int64_t index, const RequestFn& choose) {
  if (auto kept = cache_.find(index, choose)) return kept;
  if (!cache_.open()) return std::make_shared<const View>(data_.view(index, choose));
  const auto whole = [&](int height, int width) {
    return whole_image(height, width, choose(height, width).shrink);
  };
  auto view = std::make_shared<const View>(data_.view(index, whole));
  cache_.add(index, view);
  return view;
}

// Images without a random crop are cached after preparation.
std::shared_ptr<const View> Preprocessor::final_view(int64_t index, Resizer& resizer) {
  const auto any = [](int, int) { return DecodeRequest{}; };
  if (auto kept = cache_.find(index, any)) return kept;
  Placement place{};
  const auto placed = [&](int height, int width) {
    place = centre_crop(height, width, options_.image_size, options_.crop);
    return to_resize(place.from, place.height, place.width);
  };
  View view = data_.view(index, placed);
  auto done =
      std::make_shared<const View>(whole_view(final_image(std::move(view), place, resizer), any));
  cache_.add(index, done);
  return done;
}

Image Preprocessor::final_image(View view, const Placement& place, Resizer& resizer) const {
  const int size = options_.image_size;
  const auto& [from, top, left, height, width] = place;
  const auto is_size = [size](auto a, auto b) { return a == size && b == size; };
  if (is_size(from.height, from.width) && is_size(view.full_height, view.full_width))
    return std::move(view.pixels);
  Image result = black_image(size, size);
  std::vector<uint8_t>& pixels = result.pixels;
  if (is_size(height, width)) {
    resizer.run(view, from, size, size, pixels.data(), options_.crop.interpolation);
    return result;
  }
  Image inner = black_image(height, width);
  resizer.run(view, from, height, width, inner.pixels.data(), options_.crop.interpolation);
  if (options_.crop.mode == CropMode::border)
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = options_.augment.mean_color[i % 3];
  copy_window(inner, {.height = height, .width = width}, -top, -left, size, pixels.data());
  return result;
}

// Leaves the crop to the device if the image has the stored size; otherwise crops here.
void Preprocessor::cut_window(const View& view, const AugmentKey& key,
                              const PreparedRow& out) const {
  const auto [top, left] =
      random_window(key, view.full_height, view.full_width, options_.image_size, options_.crop);
  if (view.full_height == size_ && view.full_width == size_) {
    std::memcpy(out.pixels, view.pixels.pixels.data(), view.pixels.pixels.size());
    out.crop = {.top = static_cast<int16_t>(top), .left = static_cast<int16_t>(left)};
  } else {
    std::memset(out.pixels, 0, 3 * size_t(size_) * static_cast<size_t>(size_));
    copy_window(view.pixels, view.at, top, left, size_, out.pixels);
  }
}

void Preprocessor::run(int64_t index, uint32_t epoch, Resizer& resizer, const PreparedRow& out) {
  const AugmentKey key{options_.seed, epoch, static_cast<uint32_t>(index)};
  const int size = options_.image_size;
  out.crop = {};
  std::ranges::fill(out.ops, ImageOp{});
  if (crop_ == TrainCrop::random_resized) {
    Box box;
    const auto cropped = [&](int height, int width) {
      box = random_resized_crop(key, height, width, options_.crop);
      return to_resize(box, size, size);
    };
    const auto image = view(index, cropped);
    resizer.run(*image, box, size, size, out.pixels, options_.crop.interpolation);
  } else if (crop_ == TrainCrop::pad_if_needed) {
    const auto window = [&](int height, int width) {
      const auto [top, left] = random_window(key, height, width, size, options_.crop);
      return DecodeRequest{{double(top), double(left), double(size), double(size)}};
    };
    cut_window(*view(index, window), key, out);
  } else {
    const auto image = final_view(index, resizer);
    if (crop_ == TrainCrop::padded)
      cut_window(*image, key, out);
    else
      std::memcpy(out.pixels, image->pixels.pixels.data(), image->pixels.pixels.size());
  }
  if (!train_) return;
  random_flips(key, options_.crop, out.crop);
  if (out.ops.empty()) return;
  size_t layer = 0;
  for (const DrawnOperation& drawn : draw_operations(options_.augment, key, size))
    out.ops[layer++] = image_op(options_.augment, drawn, size);
}

Box Preprocessor::shown(int64_t index, uint32_t epoch) const {
  int height = 0, width = 0;
  data_.view(index, [&](int h, int w) {
    height = h, width = w;
    constexpr double pixel = 1, as_small_as_can_be = 8;
    return DecodeRequest{{.height = pixel, .width = pixel}, as_small_as_can_be};
  });
  const AugmentKey key{options_.seed, epoch, static_cast<uint32_t>(index)};
  const int size = options_.image_size;
  if (crop_ == TrainCrop::random_resized)
    return random_resized_crop(key, height, width, options_.crop);
  if (crop_ == TrainCrop::pad_if_needed) {
    const Window w = random_window(key, height, width, size, options_.crop);
    return {double(w.top), double(w.left), double(size), double(size)};
  }
  // A pixel of the result covers `down` x `right` pixels of the image.
  const Placement placed = centre_crop(height, width, size, options_.crop);
  const double down = placed.from.height / placed.height;
  const double right = placed.from.width / placed.width;
  const Window w = crop_ == TrainCrop::padded ? random_window(key, size, size, size, options_.crop)
                                              : Window{0, 0};
  return {.top = placed.from.top + (w.top - placed.top) * down,
          .left = placed.from.left + (w.left - placed.left) * right,
          .height = size * down,
          .width = size * right};
}

}  // namespace bv
