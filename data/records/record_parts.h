// The records that --data names: one set, or train and val.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/records/example.h"
#include "data/records/record_files.h"
#include "data/records/record_index.h"
#include "data/records/skipped_records.h"

namespace bv {

struct Records {
  Records(std::string named, const std::string& in, RecordIndex&& of);
  // The record of a row. Throws BadImage if it is damaged, DataError if it is another one's.
  PictureExample picture(const IndexRow&) const;
  const std::string path;    // of the index, or of the folder without one
  const std::string folder;  // of the files
  const RecordIndex index;
  const RecordFiles files;
};

struct RecordParts {
  std::vector<std::shared_ptr<const Records>> all;  // train and val, or a single set
  std::vector<std::string> notes;                   // for the user
  std::vector<std::string> lost = {};  // lines about files of which no record is listed
  SkippedRecords skipped = {};
};
// Finds the parts of an index, or of a folder of records. Throws DataError; without an index,
// also for a bad record unless `skip_bad`.
RecordParts find_record_parts(const std::string& path, bool skip_bad);

}  // namespace bv
