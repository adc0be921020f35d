// Image folders: one folder per class, with or without train/ and val/ above them.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "data/class_names.h"
#include "data/decode/decode.h"
#include "data/folder_scan.h"
#include "data/held_out.h"
#include "data/left_out.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

// All class folders of a part, sorted by name.
struct Part {
  std::string path;
  std::vector<ClassFolder> classes;
  LeftOut left_out;
};

// Refuses CIFAR in a subfolder.
void refuse_cifar(const fs::path& folder) {
  if (const std::string name = cifar_name(folder); !name.empty())
    throw DataError(folder.string() + ": " + name + ", which needs --data " + folder.string());
}

ClassFolder require_images(ClassFolder found, const fs::path& folder) {
  if (found.files.empty()) refuse_cifar(folder);
  if (found.files.empty())
    throw DataError(folder.string() + ": a class folder without images (" + known_formats() +
                    " are read)");
  return found;
}

std::vector<std::string> names_of(const Part& part) {
  std::vector<std::string> names;
  for (const ClassFolder& c : part.classes) names.push_back(c.name);
  return names;
}

// Puts images that a run has skipped back into the list if their files are gone.
ClassFolder keep_places(ClassFolder found, const fs::path& root, const fs::path& folder,
                        const std::vector<std::string>& skipped) {
  const fs::path below = fs::path(absolute_path(folder)) / "";
  for (const std::string& path : skipped) {
    std::error_code error;
    if (!path.starts_with(below.string()) || fs::exists(path, error)) continue;
    const fs::path inside = fs::path(path).lexically_relative(below);
    const std::string file = (folder / inside).lexically_relative(root).string();
    const auto at = std::ranges::lower_bound(found.files, file);
    if (at == found.files.end() || *at != file) found.files.insert(at, file);
  }
  return found;
}

Part scan_part(const fs::path& root, const fs::path& path,
               const std::vector<std::string>& skipped) {
  Part part{.path = path.string(), .classes = {}, .left_out = {}};
  const auto folders = folders_in(path);
  if (folders.empty()) refuse_cifar(path);
  if (folders.empty())
    throw DataError(part.path +
                    ": no class folders in it (nor train/ and val/, nor CIFAR's .bin files)" +
                    (scan_class(root, path).files.empty()
                         ? ""
                         : "; if its images are of one class, give the folder above it"));
  for (const fs::path& folder : folders)
    part.classes.push_back(
        require_images(keep_places(scan_class(root, folder), root, folder, skipped), folder));
  for (const ClassFolder& c : part.classes) part.left_out.add(c.left_out);
  part.left_out.add({.systems = entries_of(path).systems});
  refuse_two_forms(names_of(part), part.path);
  if (part.classes.size() < 2)
    throw DataError(part.path + ": has one class, '" + part.classes[0].name +
                    "'; at least two class folders are needed");
  return part;
}

// Labels are positions in the list of class names, so train/ and val/ must agree on it. Sorts val's
// classes like train's: names in another Unicode form may have another order.
void check_same_classes(const Part& train, Part& val) {
  const std::vector<std::string> in_train = names_of(train), in_val = names_of(val);
  const ClassPositions places(in_train), places_in_val(in_val);
  const auto refuse_if_lost = [](const Part& a, const Part& b, const ClassPositions& known) {
    for (const ClassFolder& c : a.classes)
      if (!known.of(c.name))
        throw DataError(a.path + " and " + b.path + " have different classes: '" + c.name +
                        "' is only in the first" + lookalike_of(c.name, names_of(b)));
  };
  refuse_if_lost(train, val, places_in_val);
  refuse_if_lost(val, train, places);
  std::ranges::sort(val.classes, {}, [&](const ClassFolder& c) { return *places.of(c.name); });
}

std::vector<ImageFile> all_items(const Part& part, const ClassList& classes) {
  std::vector<ImageFile> items;
  for (size_t c = 0; c < part.classes.size(); ++c)
    for (const std::string& file : part.classes[c].files)
      items.push_back({file, classes.labels[c]});
  return items;
}

// Holds out the same fraction of each class, at least one image if the class has two.
void split(const Part& part, const ClassList& classes, const DataOptions& options,
           std::vector<ImageFile>& train, std::vector<ImageFile>& val) {
  for (size_t c = 0; c < part.classes.size(); ++c) {
    const ClassFolder& found = part.classes[c];
    const fs::path folder =
        (fs::path(part.path).lexically_relative(options.path) / found.name).lexically_normal();
    std::vector<std::string> names;
    for (const std::string& file : found.files)
      names.push_back(fs::path(file).lexically_relative(folder));
    const std::vector<bool> in_val =
        held_out(found.name, names, options.val_fraction, options.split_seed);
    for (size_t i = 0; i < names.size(); ++i)
      (in_val[i] ? val : train).push_back({found.files[i], classes.labels[c]});
  }
}

// `roots`: of the parts.
void note_left_out(std::span<const Part* const> parts, const std::vector<std::string>& roots,
                   DataSets& sets) {
  LeftOut all;
  for (const std::string& root : roots)
    if (std::ranges::none_of(parts, [&](const Part* part) { return part->path == root; }))
      all.add({.systems = entries_of(root).systems});
  for (const Part* part : parts) all.add(part->left_out);
  sets.notes = left_out_lines(all);
  sets.left_out = unread_images(all);
  if (!sets.left_out.empty()) sets.left_out_advice = conversion(all, roots);
  if (!all.others.empty())
    sets.description += ", other files ignored: " + std::to_string(all.others.size());
}

DataSets assemble(const DataOptions& options, ClassList classes, std::vector<ImageFile> train,
                  std::vector<ImageFile> val, std::span<const Part* const> parts,
                  const std::string& how, const std::string& val_root) {
  Fingerprint print("folder", classes.names);
  for (const auto* items : {&train, &val}) {
    print.add(static_cast<int64_t>(items->size()));
    for (const ImageFile& item : *items) {
      print.add(item.path);
      print.add(item.label);
    }
  }
  DataSets sets{
      .kind = DataKind::photos, .classes = std::move(classes.names), .fingerprint = print.value()};
  sets.train = image_files(options.path, std::move(train));
  if (!val.empty()) sets.val = image_files(val_root, std::move(val));
  sets.description = describe(options.path, sets, how);
  std::vector<std::string> roots = {options.path};
  if (val_root != options.path) roots.push_back(val_root);
  note_left_out(parts, roots, sets);
  for (std::string& line : unused_parts(options.path, val_root))
    sets.notes.push_back(std::move(line));
  return sets;
}

// Refuses a --val whose class folders are one level deeper.
void refuse_parts(const std::string& val) {
  const PartFolders parts = find_parts(val);
  const fs::path& part = parts.val.empty() ? parts.train : parts.val;
  if (!part.empty())
    throw DataError("--val " + val + ": has " + part.filename().string() +
                    "/ with class folders in it; give --val " + part.string());
}

// " (of valid/; test/ isn't used)", if both exist.
std::string which_val(const DataOptions& options, const fs::path& val) {
  const std::string name = val.filename().string();
  std::string others;
  int count = 0;
  for (const fs::path& folder : folders_in(options.path)) {
    std::error_code error;
    const std::string other = folder.filename().string();
    if (!is_val_name(other) || fs::equivalent(folder, val, error)) continue;
    others += (count++ ? ", " : "; ") + other + "/";
  }
  if (count == 0 && !lower_case(name).starts_with("test")) return "";
  if (count > 0) others += count == 1 ? " isn't used" : " aren't used";
  return " (of " + name + "/" + others + ")";
}

DataSets open_parts(const DataOptions& options, const fs::path& train_path,
                    const fs::path& val_path) {
  const std::string val_root = options.val.empty() ? options.path : options.val;
  if (!options.val.empty()) refuse_parts(options.val);
  const Part train = scan_part(options.path, train_path, options.skipped);
  Part val = scan_part(val_root, val_path, options.skipped);
  const Part* const parts[] = {&train, &val};
  check_same_classes(train, val);
  ClassList classes = order_classes(names_of(train), options);
  auto train_items = all_items(train, classes), val_items = all_items(val, classes);
  const bool has_parts = train_path != options.path;  // then "test" is a part, not a class
  return assemble(options, std::move(classes), std::move(train_items), std::move(val_items), parts,
                  has_parts ? which_val(options, val_path) : "", val_root);
}

DataSets open_and_split(const DataOptions& options, const fs::path& path) {
  const Part part = scan_part(options.path, path, options.skipped);
  const Part* const parts[] = {&part};
  ClassList classes = order_classes(names_of(part), options);
  std::vector<ImageFile> train, val;
  split(part, classes, options, train, val);
  DataSets sets = assemble(options, std::move(classes), std::move(train), std::move(val), parts,
                           " (split by --val-fraction)", options.path);
  sets.held_out = true;
  return sets;
}

}  // namespace

std::vector<std::string> pictures_in(const std::string& folder, std::vector<std::string>& notes) {
  ClassFolder found = scan_class(folder, folder);
  for (std::string& file : found.files) file = fs::path(folder) / file;
  for (const std::string& line : left_out_lines(found.left_out))
    notes.push_back(folder + ": " + line);
  if (const std::string unread = unread_images(found.left_out); !unread.empty())
    notes.push_back("warning: " + folder + ": images are left out: " + unread + "; use " +
                    conversion(found.left_out, std::span(&folder, 1)));
  return std::move(found.files);
}

// A folder `train` with images but no subfolders is a class, like `bus` and `car` next to it.
DataSets open_folder(const DataOptions& options) {
  const PartFolders parts = find_parts(options.path);
  if (!options.val.empty())
    return open_parts(options, parts.train.empty() ? fs::path(options.path) : parts.train,
                      options.val);
  const auto [train, val] = require_train(parts, options.path);
  if (train.empty()) return open_and_split(options, options.path);
  return val.empty() ? open_and_split(options, train) : open_parts(options, train, val);
}

}  // namespace bv
