// From a data set's picture to what a batch stores: cached, resized, cropped; and what the device
// has still to do (Crop).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/resize.h"

namespace bv {

// Pictures by index, as long as all that come fit the limit; then none, as a part of a larger set
// would only rarely be hit. What a batch holds never depends on it.
class PictureCache {
 public:
  PictureCache(int64_t images, size_t limit) : limit_(limit), images_(limit > 0 ? images : 0) {}
  std::shared_ptr<const Image> find(int64_t index) const;
  void add(int64_t index, std::shared_ptr<const Image> image);
  size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  size_t limit_, bytes_ = 0;
  std::vector<std::shared_ptr<const Image>> images_;  // empty once they did not fit
};

// Makes single rows of batches. Threads share it, each with a Resizer of its own.
class Preprocessor {
 public:
  Preprocessor(const Dataset& data, const LoaderOptions& options, bool train);
  // out [size, size, 3]. Throws BadImage.
  void run(int64_t index, uint32_t epoch, Resizer& resizer, uint8_t* out, Crop& crop);
  const PictureCache& cache() const { return cache_; }

 private:
  std::shared_ptr<const Image> picture(int64_t index, Resizer& resizer);
  std::shared_ptr<const Image> final_picture(Image image, Resizer& resizer) const;

  const Dataset& data_;
  LoaderOptions options_;
  bool augment_, random_crop_;
  PictureCache cache_;
};

}  // namespace bv
