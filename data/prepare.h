// Turns a data set's image into a row of a batch: pixels, and the Crop and ImageOps for the device.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/dataset.h"
#include "data/image/resize.h"
#include "data/loader_options.h"
#include "kernels/types.h"

namespace bv {

// A cache of whole images by index and scale. If they exceed the limit, it drops all and stays
// empty, since a cache of a small part of the set would rarely hit. Batches don't depend on it.
class ViewCache {
 public:
  explicit ViewCache(size_t limit) : limit_(limit) {}
  // A view at the scale that `choose` requests, given the image's size. Null: not cached.
  std::shared_ptr<const View> find(int64_t index, const RequestFn& choose) const;
  void add(int64_t index, std::shared_ptr<const View> view);
  bool open() const;  // whether added images are kept
  size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  size_t limit_, bytes_ = 0;  // limit 0: closed
  std::unordered_map<int64_t, std::vector<std::shared_ptr<const View>>> views_;
};

// A row of a batch. pixels [stored size, stored size, 3]
struct PreparedRow {
  uint8_t* pixels;
  Crop& crop;
  std::span<ImageOp> ops;
};

// Prepares single rows of batches. Shared by threads, each with its own Resizer.
class Preprocessor {
 public:
  Preprocessor(const Dataset& data, const LoaderOptions& options, bool train);
  // Throws BadImage.
  void run(int64_t index, uint32_t epoch, Resizer& resizer, const PreparedRow& out);
  // The part of the image that the row shows before flipping, in the image's pixels; it extends
  // beyond the image where a frame is added. Throws BadImage.
  Box shown(int64_t index, uint32_t epoch) const;

 private:
  std::shared_ptr<const View> view(int64_t index, const RequestFn& choose);
  std::shared_ptr<const View> final_view(int64_t index, Resizer& resizer);
  Image final_image(View view, const Placement& place, Resizer& resizer) const;
  DecodeRequest to_resize(const Box& box, int height, int width) const;
  void cut_window(const View&, const AugmentKey&, const PreparedRow& out) const;

  const Dataset& data_;
  LoaderOptions options_;
  bool train_;
  TrainCrop crop_;
  int size_;  // side of stored images
  ViewCache cache_;
};

}  // namespace bv
