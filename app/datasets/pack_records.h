// Packs a list of pictures into TFRecords with their .idx files and an index.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "app/datasets/image_list.h"

namespace bv {

struct PackOptions {
  std::string name = {};
  std::optional<int> shards = {};  // number of shards; empty: by shard_mb
  int shard_mb = 256;
  std::optional<int> resize = {};  // shorter side, in pixels
  int quality = 95;                // of resized JPEGs
  int workers = 1;
  bool skip_bad = false;
};
struct Packed {
  int64_t images = 0, records = 0, shards = 0, skipped = 0;
  uint64_t bytes = 0;
  std::string first_skipped = {}, empty_classes = {};  // a line about each, or empty
};

// Writes OUT/NAME-00000-of-00003.tfrecord, NAME-00000-of-00003.idx, ... and OUT/NAME.index; their
// contents don't depend on the number of workers. They are written in a hidden folder of OUT, then
// renamed, the index last. Returns nothing if `go_on`, called with the number of finished pictures,
// returns false. Throws DataError naming a bad picture, UserError if the files exist, or RunError.
std::optional<Packed> pack_records(const ImageList&, const std::string& list_path,
                                   const std::string& out, const PackOptions&,
                                   const std::function<bool(int64_t done, int64_t of)>& go_on);

}  // namespace bv
