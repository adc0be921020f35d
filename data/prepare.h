// From a data set's image to a batch's row and the Crop that remains for the device.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/resize.h"

namespace bv {

// Images by index, until they exceed the limit; then it drops all and stays empty, since a part of
// a larger set would rarely be hit. Batches don't depend on it.
class ImageCache {
 public:
  ImageCache(int64_t images, size_t limit) : limit_(limit), images_(limit > 0 ? images : 0) {}
  std::shared_ptr<const Image> find(int64_t index) const;
  void add(int64_t index, std::shared_ptr<const Image> image);
  size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  size_t limit_, bytes_ = 0;
  std::vector<std::shared_ptr<const Image>> images_;  // empty once they didn't fit
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
  // The part of the image, in pixels of its file, that such a row shows before flipping: beyond the
  // image where there is a frame around it. Throws BadImage.
  Box shown(int64_t index, uint32_t epoch) const;

 private:
  int side_to_decode() const;
  std::shared_ptr<const Image> cached_image(int64_t index, Resizer& resizer);
  std::shared_ptr<const Image> final_image(Image image, Resizer& resizer) const;
  void cut_window(const Image&, const AugmentKey&, const PreparedRow& out) const;

  const Dataset& data_;
  LoaderOptions options_;
  bool train_;
  TrainCrop crop_;
  int size_;  // of stored images
  ImageCache cache_;
};

}  // namespace bv
