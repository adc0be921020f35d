#include "engine/datasets/split_folder.h"

#include <memory>
#include <utility>

#include "data/dataset.h"
#include "data/folder_scan.h"
#include "engine/base/error.h"
#include "engine/base/file_io.h"

namespace bv {

namespace fs = std::filesystem;

SplitPlan plan_split(const std::string& path, double val_fraction, uint64_t seed) {
  if (data_kind(path) == DataKind::cifar)
    throw DataError(path + ": CIFAR-10's files have a validation set of their own");
  const PartFolders parts = find_parts(path);
  if (!parts.val.empty())
    throw DataError(path + ": is split already, it has " + parts.val.filename().string() + "/");
  const DataSets sets =
      open_dataset({.path = path, .val_fraction = val_fraction, .split_seed = seed});
  const fs::path root = parts.train.empty() ? fs::path(path) : parts.train;
  SplitPlan plan{.notes = sets.notes};
  for (const std::string& name : sets.classes) plan.classes.push_back({.name = name});
  const auto add = [&](const Dataset* part, const char* name, int64_t ClassCount::*count) {
    for (int64_t i = 0; part && i < part->size(); ++i) {
      const fs::path file = fs::path(part->file(i)).lexically_relative(root);
      plan.files.push_back({part->file(i), (name / file).string()});
      ++(plan.classes[part->label(i)].*count);
    }
  };
  add(sets.train.get(), "train", &ClassCount::train);
  add(sets.val.get(), "val", &ClassCount::val);
  for (const ClassCount& c : plan.classes)
    if (c.train == 0 || c.val == 0)
      throw DataError((root / c.name).string() +
                      ": has one image; to be in train/ and in val/ a "
                      "class needs two");
  return plan;
}

bool write_split(const SplitPlan& plan, const fs::path& folder, bool link,
                 const std::function<bool(size_t)>& go_on) {
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const auto& [from, to] = plan.files[i];
    const fs::path target = folder / to;
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (!error && link)
      fs::create_symlink(fs::absolute(from), target, error);
    else if (!error)
      fs::copy_file(from, target, error);
    if (error)
      throw WriteError(link ? "link " + from + " as" : "copy " + from + " to", to, error.value());
    if (!go_on(i + 1)) return false;
  }
  return true;
}

}  // namespace bv
