// Image folders: one folder per class, with or without train/ and val/ above them.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>

#include "data/file.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t max_image_bytes = uint64_t{1} << 30;

struct Item {
  std::string path;  // relative to the root
  int label;
};

struct ClassFolder {
  std::string name;
  std::vector<std::string> files;  // sorted, relative to the root
};

// All class folders of a part, sorted by name.
struct Part {
  std::string path;
  std::vector<ClassFolder> classes;
  int64_t ignored = 0;  // files whose names aren't an image's
};

class FolderDataset : public Dataset {
 public:
  FolderDataset(std::string root, std::vector<Item> items)
      : root_(std::move(root)), items_(std::move(items)) {}
  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int label(int64_t index) const override { return items_[index].label; }
  std::string name(int64_t index) const override { return root_ + "/" + items_[index].path; }
  int64_t files() const override { return size(); }
  std::string file(int64_t number) const override { return name(number); }
  Image image(int64_t index, int at_least) const override {
    try {
      return decode_image(read_file(name(index), max_image_bytes), at_least);
    } catch (const FileError& e) {
      throw BadImage(e.what());
    }
  }

 private:
  std::string root_;
  std::vector<Item> items_;
};

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

bool has_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr const char* known[] = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".pnm"};
  return std::find(std::begin(known), std::end(known), extension) != std::end(known);
}

// What is in a folder and not hidden, sorted.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!hidden(at->path())) entries.push_back(*at);
  if (error) throw DataError(folder.string() + ": can't be read: " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Images in a folder, at any depth; links to folders are not followed.
void scan_folder(const fs::path& root, const fs::path& folder, std::vector<std::string>& files,
                 int64_t& ignored) {
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code error;  // a link to nothing is no image
    if (entry.is_directory(error) && !entry.is_symlink(error)) {
      scan_folder(root, entry.path(), files, ignored);
    } else if (entry.is_regular_file(error)) {
      if (has_image_name(entry.path()))
        files.push_back(entry.path().lexically_relative(root).string());
      else
        ++ignored;
    }
  }
}

ClassFolder scan_class(const fs::path& root, const fs::path& folder, int64_t& ignored) {
  ClassFolder found{.name = folder.filename().string(), .files = {}};
  scan_folder(root, folder, found.files, ignored);
  if (found.files.empty())
    throw DataError(folder.string() +
                    ": a class folder without images (.jpg .jpeg .png .bmp .gif .ppm .pgm .pnm)");
  std::sort(found.files.begin(), found.files.end());
  return found;
}

std::vector<fs::path> folders_in(const fs::path& path) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(path))
    if (entry.is_directory(error)) folders.push_back(entry.path());
  return folders;
}

Part scan_part(const fs::path& root, const fs::path& path) {
  Part part{.path = path.string(), .classes = {}};
  const auto folders = folders_in(path);
  if (folders.empty())
    throw DataError(part.path +
                    ": no class folders in it (nor train/ and val/, nor CIFAR-10's "
                    "data_batch_1.bin)");
  for (const fs::path& folder : folders)
    part.classes.push_back(scan_class(root, folder, part.ignored));
  if (part.classes.size() < 2)
    throw DataError(part.path + ": has one class, '" + part.classes[0].name +
                    "'; at least two class folders are needed");
  return part;
}

std::vector<std::string> names_of(const Part& part) {
  std::vector<std::string> names;
  for (const ClassFolder& c : part.classes) names.push_back(c.name);
  return names;
}

// Labels are positions in the list of class names, so train/ and val/ must agree on it.
void check_same_classes(const Part& train, const Part& val) {
  for (const auto& [a, b] : {std::pair(&train, &val), std::pair(&val, &train)}) {
    const auto names = names_of(*b);
    for (const ClassFolder& c : a->classes)
      if (!std::binary_search(names.begin(), names.end(), c.name))
        throw DataError(a->path + " and " + b->path + " have different classes: '" + c.name +
                        "' is only in the first");
  }
}

std::vector<Item> all_items(const Part& part, const ClassList& classes) {
  std::vector<Item> items;
  for (size_t c = 0; c < part.classes.size(); ++c)
    for (const std::string& file : part.classes[c].files)
      items.push_back({file, classes.labels[c]});
  return items;
}

// Holds out the same fraction of each class, at least one image if it has two.
void split(const Part& part, const ClassList& classes, const DataOptions& options,
           std::vector<Item>& train, std::vector<Item>& val) {
  for (size_t c = 0; c < part.classes.size(); ++c) {
    const auto& files = part.classes[c].files;
    const auto count = static_cast<int64_t>(files.size());
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    RandomWords random(options.seed, random_split, static_cast<uint32_t>(c));
    for (int64_t i = count - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<uint32_t>(i + 1))]);
    int64_t held_out = std::llround(options.val_fraction * double(count));
    if (options.val_fraction > 0)
      held_out = std::clamp<int64_t>(held_out, count > 1 ? 1 : 0, count - 1);
    std::vector<bool> in_val(count);
    for (int64_t i = 0; i < held_out; ++i) in_val[order[i]] = true;
    for (int64_t i = 0; i < count; ++i)
      (in_val[i] ? val : train).push_back({files[i], classes.labels[c]});
  }
}

DataSets assemble(const DataOptions& options, ClassList classes, std::vector<Item> train,
                  std::vector<Item> val, int64_t ignored, const std::string& how) {
  Fingerprint print("folder", classes.names);
  for (const auto* items : {&train, &val}) {
    print.add(static_cast<int64_t>(items->size()));
    for (const Item& item : *items) {
      print.add(item.path);
      print.add(item.label);
    }
  }
  DataSets sets{
      .kind = DataKind::photos, .classes = std::move(classes.names), .fingerprint = print.value()};
  sets.train = std::make_unique<FolderDataset>(options.path, std::move(train));
  if (!val.empty()) sets.val = std::make_unique<FolderDataset>(options.path, std::move(val));
  sets.description = describe(options.path, sets, how);
  if (ignored > 0) sets.description += ", other files ignored: " + std::to_string(ignored);
  return sets;
}

bool has_folders(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !folders_in(path).empty();
}

fs::path val_folder(const fs::path& root) {
  return has_folders(root / "val") ? root / "val" : root / "validation";
}

}  // namespace

// A folder `train` with images and no folders is a class (next to `bus` and `car`).
bool is_split_folder(const std::string& path) {
  const bool train = has_folders(fs::path(path) / "train"), val = has_folders(val_folder(path));
  if (train && !val)
    throw DataError(path + ": has train/ but no val/ or validation/ with class folders in it");
  if (val && !train) throw DataError(path + ": has val/ but no train/ with class folders in it");
  return train;
}

DataSets open_split_folder(const DataOptions& options) {
  const fs::path root(options.path);
  const Part train = scan_part(root, root / "train"), val = scan_part(root, val_folder(root));
  check_same_classes(train, val);
  ClassList classes = order_classes(names_of(train), options);
  auto train_items = all_items(train, classes), val_items = all_items(val, classes);
  return assemble(options, std::move(classes), std::move(train_items), std::move(val_items),
                  train.ignored + val.ignored, "");
}

DataSets open_class_folders(const DataOptions& options) {
  const Part part = scan_part(options.path, options.path);
  ClassList classes = order_classes(names_of(part), options);
  std::vector<Item> train, val;
  split(part, classes, options, train, val);
  return assemble(options, std::move(classes), std::move(train), std::move(val), part.ignored,
                  " (split by --val-fraction)");
}

}  // namespace bv
