// The records that --data names: one set, or train and val.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/records/indexed_record.h"
#include "data/records/skipped_records.h"

namespace bv {

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
