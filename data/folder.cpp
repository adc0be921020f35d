// Image folders: one folder per class, with or without train/ and val/ above them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <span>

#include "data/decode/decode.h"
#include "data/file.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

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
  std::map<std::string, int64_t> left_out = {};  // files that aren't read, by extension
};

class FolderDataset : public Dataset {
 public:
  FolderDataset(std::string root, std::vector<Item> items)
      : root_(std::move(root)), items_(std::move(items)) {}
  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  int label(int64_t index) const override { return items_[index].label; }
  std::string name(int64_t index) const override {
    return root_.empty() ? items_[index].path : root_ + "/" + items_[index].path;
  }
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

bool is_one_of(const std::string& word, std::span<const char* const> words) {
  return std::ranges::any_of(words, [&](const char* known) { return word == known; });
}

constexpr const char* extensions[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png",
                                      ".bmp", ".gif",  ".ppm", ".pgm",  ".pnm"};
constexpr const char* webp_extensions[] = {".webp"};
constexpr const char* tiff_extensions[] = {".tif", ".tiff"};
// Images as well, which a user will miss.
constexpr const char* other_extensions[] = {".webp", ".tif", ".tiff", ".heic", ".heif", ".avif",
                                            ".jp2",  ".svg", ".dng",  ".cr2",  ".nef"};

bool is_read(const std::string& extension) {
  return is_one_of(extension, extensions) || (have_webp && is_one_of(extension, webp_extensions)) ||
         (have_tiff && is_one_of(extension, tiff_extensions));
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
                 std::map<std::string, int64_t>& left_out) {
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code error;  // a link to nothing is no image
    if (entry.is_directory(error) && !entry.is_symlink(error)) {
      scan_folder(root, entry.path(), files, left_out);
    } else if (entry.is_regular_file(error)) {
      const std::string extension = lower_case(entry.path().extension().string());
      if (is_read(extension))
        files.push_back(entry.path().lexically_relative(root).string());
      else
        ++left_out[extension];
    }
  }
}

// CIFAR-10 in another form, or a folder deeper, than can be read.
void refuse_cifar(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "data_batch_1", error))
    throw DataError(folder.string() + ": " + cifar_for_python);
  if (is_cifar_folder(folder.string()))
    throw DataError(folder.string() + ": CIFAR-10, which needs --data " + folder.string());
}

ClassFolder scan_class(const fs::path& root, const fs::path& folder,
                       std::map<std::string, int64_t>& left_out) {
  ClassFolder found{.name = folder.filename().string(), .files = {}};
  scan_folder(root, folder, found.files, left_out);
  if (found.files.empty()) refuse_cifar(folder);
  if (found.files.empty())
    throw DataError(folder.string() + ": a class folder without images (" + known_formats() +
                    " are read)");
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
  if (folders.empty()) refuse_cifar(path);
  if (folders.empty())
    throw DataError(part.path +
                    ": no class folders in it (nor train/ and val/, nor CIFAR-10's "
                    "data_batch_1.bin)");
  for (const fs::path& folder : folders)
    part.classes.push_back(scan_class(root, folder, part.left_out));
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

// Where a file, of this path in its class's folder, stands when some are held out: the same whatever
// other files there are.
uint64_t draw(const std::string& class_name, const std::string& file, uint64_t seed) {
  const uint64_t name = Fingerprint("split", {class_name, file}).value();
  const Philox4 words =
      philox(seed, static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32), 0, random_split);
  return uint64_t{words.at[0]} << 32 | words.at[1];
}

// Holds out the same fraction of each class, at least one image if it has two.
void split(const Part& part, const ClassList& classes, const DataOptions& options,
           std::vector<Item>& train, std::vector<Item>& val) {
  for (size_t c = 0; c < part.classes.size(); ++c) {
    const auto& [name, files] = part.classes[c];
    const fs::path folder =
        (fs::path(part.path).lexically_relative(options.path) / name).lexically_normal();
    const auto count = static_cast<int64_t>(files.size());
    std::vector<std::pair<uint64_t, int64_t>> drawn;
    for (int64_t i = 0; i < count; ++i)
      drawn.emplace_back(
          draw(name, fs::path(files[i]).lexically_relative(folder), options.split_seed), i);
    std::ranges::sort(drawn);
    int64_t held_out = std::llround(options.val_fraction * double(count));
    if (options.val_fraction > 0)
      held_out = std::clamp<int64_t>(held_out, count > 1 ? 1 : 0, count - 1);
    std::vector<bool> in_val(count);
    for (int64_t i = 0; i < held_out; ++i) in_val[drawn[i].second] = true;
    for (int64_t i = 0; i < count; ++i)
      (in_val[i] ? val : train).push_back({files[i], classes.labels[c]});
  }
}

// "left out: 9 .webp files; JPEG, ... are read (mogrify -format jpg *.webp converts)"
void note_left_out(std::map<std::string, int64_t> left_out, DataSets& sets) {
  std::string images, convert;
  int64_t others = 0;
  bool by_library = false;  // .webp or .tif, which a build with its library reads
  for (const auto& [extension, count] : left_out) {
    if (!is_one_of(extension, other_extensions)) {
      others += count;
      continue;
    }
    images += (images.empty() ? "" : ", ") + std::to_string(count) + " " + extension;
    convert += " *" + extension;
    by_library |= is_one_of(extension, webp_extensions) || is_one_of(extension, tiff_extensions);
  }
  if (!images.empty())
    sets.notes.push_back("warning: images left out: " + images + "; " + known_formats() +
                         " are read (ImageMagick converts: mogrify -format jpg" + convert +
                         (by_library ? "; or make deps && make" : "") + ")");
  if (others > 0) sets.description += ", other files ignored: " + std::to_string(others);
}

DataSets assemble(const DataOptions& options, ClassList classes, std::vector<Item> train,
                  std::vector<Item> val, const Part& part, const std::string& how,
                  const std::string& val_root) {
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
  if (!val.empty()) sets.val = std::make_unique<FolderDataset>(val_root, std::move(val));
  sets.description = describe(options.path, sets, how);
  note_left_out(part.left_out, sets);
  return sets;
}

bool has_folders(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !folders_in(path).empty();
}

constexpr const char* train_names[] = {"train", "training"};
constexpr const char* val_names[] = {"val", "valid", "validation", "test", "testing"};
// The first folder in `root` of one of these names, in any case, that has class folders.
fs::path part_folder(const fs::path& root, std::span<const char* const> names) {
  const auto folders = folders_in(root);
  for (const char* name : names)
    for (const fs::path& folder : folders)
      if (lower_case(folder.filename().string()) == name && has_folders(folder)) return folder;
  return {};
}
fs::path train_folder(const fs::path& root) { return part_folder(root, train_names); }
fs::path val_folder(const DataOptions& options) {
  if (!options.val.empty()) return options.val;
  return part_folder(options.path, val_names);
}

// --val where the class folders are a floor deeper.
void refuse_parts(const std::string& val) {
  fs::path part = part_folder(val, val_names);
  if (part.empty()) part = train_folder(val);
  if (!part.empty())
    throw DataError("--val " + val + ": has " + part.filename().string() +
                    "/ with class folders in it; give --val " + part.string());
}

// " (of valid/; test/ isn't used)", where one may expect another.
std::string which_val(const DataOptions& options, const fs::path& val) {
  const std::string name = val.filename().string();
  std::string others;
  int count = 0;
  for (const fs::path& folder : folders_in(options.path)) {
    std::error_code error;
    const std::string other = folder.filename().string();
    if (!is_one_of(lower_case(other), val_names) || fs::equivalent(folder, val, error)) continue;
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
  Part train = scan_part(options.path, train_path), val = scan_part(val_root, val_path);
  check_same_classes(train, val);
  ClassList classes = order_classes(names_of(train), options);
  auto train_items = all_items(train, classes), val_items = all_items(val, classes);
  for (const auto& [extension, count] : val.left_out) train.left_out[extension] += count;
  const bool has_parts = train_path != options.path;  // and no class is called "test"
  return assemble(options, std::move(classes), std::move(train_items), std::move(val_items), train,
                  has_parts ? which_val(options, val_path) : "", val_root);
}

DataSets open_and_split(const DataOptions& options, const fs::path& path) {
  const Part part = scan_part(options.path, path);
  ClassList classes = order_classes(names_of(part), options);
  std::vector<Item> train, val;
  split(part, classes, options, train, val);
  DataSets sets = assemble(options, std::move(classes), std::move(train), std::move(val), part,
                           " (split by --val-fraction)", options.path);
  sets.held_out = true;
  return sets;
}

}  // namespace

std::unique_ptr<Dataset> open_files(std::vector<std::string> paths) {
  std::vector<Item> items;
  for (std::string& path : paths) items.push_back({std::move(path), 0});
  return std::make_unique<FolderDataset>("", std::move(items));
}

std::vector<std::string> pictures_in(const std::string& folder) {
  std::vector<std::string> files;
  std::map<std::string, int64_t> left_out;
  scan_folder(folder, folder, files, left_out);
  for (std::string& file : files) file = fs::path(folder) / file;
  return files;
}

// A folder `train` with images and no folders is a class (next to `bus` and `car`).
DataSets open_folder(const DataOptions& options) {
  const fs::path train = train_folder(options.path), val = val_folder(options);
  if (!options.val.empty())
    return open_parts(options, train.empty() ? fs::path(options.path) : train, val);
  if (train.empty() && !val.empty())
    throw DataError(options.path + ": has " + val.filename().string() +
                    "/ but no train/ with class folders in it");
  if (train.empty()) return open_and_split(options, options.path);
  return val.empty() ? open_and_split(options, train) : open_parts(options, train, val);
}

}  // namespace bv
