// A folder of class folders becomes train/ and val/, with the same classes in both.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset_stats/data_check.h"

namespace bv {

struct PlannedFile {
  std::string from, to;  // to: "train/CLASS/...", as deep as it was
};
struct SplitPlan {
  std::vector<PlannedFile> files;
  std::vector<ClassCount> classes;
  std::vector<std::string> notes;  // of images that aren't read
};
// Holds out the images that a training run's --val-fraction and --split-seed hold out: their names
// decide, on every machine. Throws DataError for what is no such folder, is split already, or has a
// class that would lack images in one of the parts.
SplitPlan plan_split(const std::string& path, double val_fraction, uint64_t seed);

// Copies the files, or links to them, into `folder`, which exists. False where `go_on`, told how
// many are done, says so. Throws RunError.
bool write_split(const SplitPlan&, const std::filesystem::path& folder, bool link,
                 const std::function<bool(size_t done)>& go_on);

}  // namespace bv
