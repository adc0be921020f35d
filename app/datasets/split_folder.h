// Splits a folder of class folders into train/ and val/, with the same classes in both.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset_stats/data_check.h"

namespace bv {

struct PlannedFile {
  std::string from, to;  // to: "train/CLASS/...", with its subfolders
};
struct SplitPlan {
  std::vector<PlannedFile> files;
  std::vector<ClassCount> classes;
  std::vector<std::string> notes;  // about images that aren't read
};
// Holds out the images that a training run with this --val-fraction and --split-seed holds out: the
// choice depends on their names alone. Throws DataError if the path is not a folder of class
// folders, is split already, or has a class with too few images for both parts.
SplitPlan plan_split(const std::string& path, double val_fraction, uint64_t seed);

// Copies or links the files into `folder`, which must exist. Returns false if `go_on`, called with
// the number of finished files, returns false. Throws RunError.
bool write_split(const SplitPlan&, const std::filesystem::path& folder, bool link,
                 const std::function<bool(size_t done)>& go_on);

}  // namespace bv
