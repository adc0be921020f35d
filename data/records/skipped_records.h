// Records and files of records that were left out because they can't be read.
#pragma once
#include <cstdint>
#include <string>

namespace bv {

// After a bad length, no further record of the file can be found, and their number isn't known.
struct SkippedRecords {
  int64_t records = 0;     // each on its own
  int64_t rests = 0;       // a record and all after it in its shard
  int64_t files = 0;       // from their first byte
  std::string first = {};  // "x.tfrecord: record 1 at byte 99: ..."

  int64_t count() const { return records + rests + files; }
  void add(const SkippedRecords&);
  // "2 damaged records, 1 record and all after it in this shard, 1 whole file"
  std::string text(const std::string& adjective = "") const;
  // "2 records can't be read and are left out, the first x.tfrecord: record 1 at byte 99: ..."
  std::string line() const;
};

}  // namespace bv
