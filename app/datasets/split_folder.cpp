#include "app/datasets/split_folder.h"

#include <fcntl.h>
#include <sys/sendfile.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "data/dataset.h"
#include "data/folder_scan.h"
#include "data/left_out.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

// std::filesystem's copy_file reports a full disk as an input/output error.
void copy_file(const std::string& from, const fs::path& to) try {
  const Descriptor in(open_regular(from, O_RDONLY));
  const Descriptor out(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  ssize_t n = out ? 1 : -1;
  while (n > 0) n = sendfile(out.fd(), in.fd(), nullptr, size_t{1} << 30);
  if (n < 0) throw WriteError("copy " + from + " to", to, errno);
} catch (const FileError& e) {
  throw DataError(from + ": " + e.what());
}

void make_link(const std::string& from, const fs::path& to) try {
  const Descriptor readable(open_regular(from, O_RDONLY));
  std::error_code error;
  fs::create_symlink(fs::absolute(from), to, error);
  if (error) throw WriteError("link " + from + " as", to, error.value());
} catch (const FileError& e) {
  throw DataError(from + ": " + e.what());
}

}  // namespace

SplitPlan plan_split(const std::string& path, double val_fraction, uint64_t seed) {
  if (data_kind(path) == DataKind::cifar)
    throw DataError(path + ": CIFAR's files have a validation set of their own");
  if (is_records(path))
    throw DataError(path +
                    ": records, which training splits by itself (--val-fraction); data unpack "
                    "turns them into files");
  const PartFolders parts = find_parts(path);
  if (!parts.val.empty())
    throw DataError(path + ": is split already, it has " + parts.val.filename().string() + "/");
  const DataSets sets =
      open_dataset({.path = path, .val_fraction = val_fraction, .split_seed = seed});
  const fs::path root = parts.train.empty() ? fs::path(path) : parts.train;
  SplitPlan plan{.notes = all_notes(sets)};
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
    make_folders(target.parent_path());
    link ? make_link(from, target) : copy_file(from, target);
    if (!go_on(i + 1)) return false;
  }
  return true;
}

}  // namespace bv
