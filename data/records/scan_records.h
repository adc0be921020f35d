// TFRecords without an index: finds their records by reading all files.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/records/record_index.h"
#include "data/records/skipped_records.h"

namespace bv {

// The files of one set: train-00000-of-01024 and so on. In a folder without files of such names or
// .tfrecord, and without other folders, all files that begin like a record are one set's.
struct RecordSet {
  std::string name;                // "train"
  std::vector<std::string> files;  // relative to the folder
};
// Finds the sets in a folder and in its train/ and validation/ (or val/, valid/, test/, testing/),
// sorted by name.
std::vector<RecordSet> find_record_sets(const std::string& folder);
// Whether the folder has any files of records, in the same places.
bool has_record_files(const std::string& folder);

// Path of the .idx of a file in a folder: next to the file, or where imagenet-tools puts it.
std::string idx_path(const std::string& folder, const std::string& file);

struct ScanOptions {
  std::optional<int> label_base = {};  // the first class's label; empty: 0 if it occurs, else 1
  bool skip_bad = false;
  int threads = 1;
};
struct ScannedSet {
  std::string name;
  RecordIndex index;
  SkippedRecords skipped = {};
};
// All sets get the same classes. Throws DataError that names file, record and offset.
std::vector<ScannedSet> scan_records(const std::string& folder, const std::vector<RecordSet>&,
                                     const ScanOptions&,
                                     const std::function<void(int64_t files)>& progress);

// The command, in backquotes, that writes an index of these files anew from their records.
std::string way_to_rebuild(const std::string& index_path, const std::string& folder,
                           std::span<const std::string> files);

}  // namespace bv
