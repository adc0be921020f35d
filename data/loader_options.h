// Options of loading: the model's input, the process's share, augmentation, threads and memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/augment/augment.h"
#include "data/augment/mixing.h"
#include "data/augment/policy.h"
#include "data/dataset.h"

namespace bv {

struct LoaderOptions {
  DataKind kind;
  int image_size;   // of the model's input
  int local_batch;  // an even number if images are mixed
  int rank = 0, ranks = 1;
  uint64_t seed = 0;
  Cropping crop = {};
  Augmentation augment = {};
  Mixing mixing = {};
  bool skip_bad_images = false;
  bool left_over_first = false;         // an epoch begins with what the one before has left out
  std::vector<int64_t> known_bad = {};  // images to skip, already reported
  // Called once per skipped image that isn't in known_bad, by one thread at a time; must not block.
  std::function<void(const std::string& line)> warn;
  int workers = 1;         // threads; at least 1
  size_t cache_bytes = 0;  // per process: decoded images are kept if all of them fit
  int prefetch = 3;        // batches prepared ahead
  bool images = true;      // false: batches have a count and a position, but no data
  // Allocates the batches; empty: pageable memory. Devices copy faster from pinned memory.
  std::function<std::shared_ptr<void>(size_t bytes)> allocate;
};

// Side of the images in a loader's batches: the model's input size, except that CIFAR's training
// images with pad_if_needed are stored at 32 pixels, since the device crops them.
int stored_size(DataKind, const Cropping&, int image_size, bool train);

}  // namespace bv
