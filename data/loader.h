// Worker threads prepare batches ahead: they decode, cache, resize and crop on the host. Order and
// augmentation depend only on (seed, epoch, position or index).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/loader_options.h"
#include "kernels/types.h"

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
  double wait_seconds;    // time that next() waited for this batch
  // [local_batch]: index in the data set of each row's image; unset where the label is -1
  const uint32_t* indices;
};

// Batches of a training epoch; `batch`: images per batch, over all processes.
int64_t training_batches(DataKind, int64_t images, int64_t batch);

// A training epoch's permutation of the images (Fisher & Yates), keyed by (seed, epoch). The last
// `left_over` images of the epoch before come first, so that each image is in one of two epochs.
// Takes time in proportion to the epoch's number if there are any.
std::vector<uint32_t> epoch_order(uint64_t seed, int64_t epoch, int64_t images,
                                  int64_t left_over = 0);

// Training: position p of an epoch holds image epoch_order(seed, epoch, ...)[p]. Batch k covers
// the local_batch * ranks positions from k * local_batch * ranks on; rank r reads the r-th
// local_batch of them. Never ends: the next epoch follows after training_batches() batches.
// Evaluation (train = false): each image once, in order; rank r reads the r-th contiguous share.
class Loader {
 public:
  Loader(const Dataset&, const LoaderOptions&, bool train);
  ~Loader();
  // Training: training_batches(); evaluation: ceil(share / local_batch). The same for all ranks.
  int64_t batches_per_epoch() const;

  // (Re)starts preparing batches from batch `batch` of `epoch`. `batch` must be below
  // batches_per_epoch(), `epoch` below 2^31; in evaluation both are 0.
  void start(int64_t epoch, int64_t batch);
  // The next batch. Throws DataError naming a bad image unless bad images are skipped, and
  // MachineError if an image's file or memory can't be had.
  const Batch& next();
  // Like next(), but polls `stop` ten times a second while waiting, and returns null once `stop`
  // returns true; start() must then precede the next call.
  const Batch* next_unless(const std::function<bool()>& stop);
  std::vector<int64_t> bad_images() const;  // known at the start or found so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bv
