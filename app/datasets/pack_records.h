// A list of pictures becomes TFRecords, their .idx and an index.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/datasets/image_list.h"

namespace bv {

struct PackOptions {
  std::string name = {};
  std::optional<int> shards = {};  // else by their size:
  int shard_mb = 256;
  std::optional<int> resize = {};  // pixels of the shorter side
  int quality = 95;                // of what was resized
  int workers = 1;
  bool skip_bad = false;
};
struct Packed {
  int64_t images = 0, records = 0, shards = 0, skipped = 0;
  uint64_t bytes = 0;
  std::string first_skipped = {};
};

// OUT/NAME-00000-of-00003.tfrecord, NAME-00000-of-00003.idx, ... and OUT/NAME.index, the same for
// any number of workers: written in a hidden folder of OUT, then renamed, the index last. Nothing
// where `go_on`, told how many pictures are done, says so. Throws DataError naming a bad picture,
// UserError where there are such files, RunError.
std::optional<Packed> pack_records(const ImageList&, const std::string& list_path,
                                   const std::string& out, const PackOptions&,
                                   const std::function<bool(int64_t done, int64_t of)>& go_on);

}  // namespace bv
