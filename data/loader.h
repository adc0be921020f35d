// Batches prepared ahead by threads: decoded, cached, resized and cropped on the host. Order and
// augmentation depend only on (seed, epoch, position or index).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/augment/augment.h"
#include "data/augment/mixing.h"
#include "data/augment/policy.h"
#include "data/dataset.h"
#include "kernels/kernels.h"

namespace bv {

// A process's share of a batch. Owned by the loader, valid until the next call of next().
struct Batch {
  const uint8_t* images;  // [local_batch, height, width, 3]; rows from `count` on are black
  const Crop* crops;      // [local_batch]
  const ImageOp* ops;     // [local_batch, augment.layers()]; null: none
  const Mix* mixes;       // [local_batch]; null: none
  const int32_t* labels;  // [local_batch]; -1 from `count` on and for skipped evaluation images
  int height, width;      // of the images
  int count;              // rows in use
  uint32_t position;      // of row 0 in the epoch's order
  double wait_seconds;    // of next() for this batch
  // [local_batch]: each image's number in the data set, if it has a label
  const uint32_t* indices;
};

struct LoaderOptions {
  DataKind kind;
  int image_size;   // of the model's input
  int local_batch;  // even with mixing
  int rank = 0, ranks = 1;
  uint64_t seed = 0;
  Cropping crop = {};
  Augmentation augment = {};
  Mixing mixing = {};
  bool skip_bad_images = false;
  std::vector<int64_t> known_bad = {};  // images to skip, already reported
  // Called for each other image that is skipped, by one thread at a time; must not block.
  std::function<void(const std::string& line)> warn;
  int workers = 1;         // threads; at least 1
  size_t cache_bytes = 0;  // per process: decoded images are kept if all of them fit
  int prefetch = 3;        // batches prepared ahead
  bool images = true;      // false: batches have a count and a position, and nothing to read
  // Allocates the batches; empty: ordinary memory. A device may read another kind faster.
  std::function<std::shared_ptr<void>(size_t bytes)> allocate;
};

// The side of the images in a loader's batches: the model's input size, except that images of one
// common size that are cropped without resizing are stored at that size.
int stored_size(DataKind, const Cropping&, int image_size, bool train);

// Batches of a training epoch; `batch`: images per batch, over all processes.
int64_t training_batches(DataKind, int64_t images, int64_t batch);

// A training epoch's permutation of the images (Fisher & Yates), keyed by (seed, epoch).
std::vector<uint32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t images);

// Training: positions p of an epoch are the images order(seed, epoch)[p]; batch k of the epoch
// covers positions [k * local_batch * ranks, ...), rank r its r-th local_batch. Never ends: the
// next epoch follows after floor(images / batch) batches. Evaluation (train = false): every image
// once, in order, rank r the r-th contiguous share.
class Loader {
 public:
  Loader(const Dataset&, const LoaderOptions&, bool train);
  ~Loader();
  // training_batches(); evaluation: ceil(share / local_batch). The same for all ranks.
  int64_t batches_per_epoch() const;

  // (Re)starts preparing batches from batch `batch` of `epoch`, which must be below
  // batches_per_epoch() and 2^31 (evaluation: both are 0).
  void start(int64_t epoch, int64_t batch);
  // The next batch. Throws DataError naming a bad image unless bad images are skipped.
  const Batch& next();
  // next(), but null once `stop`, polled ten times a second until the batch is ready, returns true;
  // then call start() before the next call.
  const Batch* next_unless(const std::function<bool()>& stop);
  std::vector<int64_t> bad_images() const;  // known or found so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bv
