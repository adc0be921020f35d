#include "data/dataset_stats/data_check.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <tuple>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/threads.h"
#include "base/unicode/canonical.h"
#include "data/class_names.h"
#include "data/decode/decode.h"
#include "data/decode/image_extensions.h"
#include "data/folder_scan.h"
#include "data/left_out.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

enum Part { train, val };

struct Item {
  std::string path, class_name;
  Part part = train;
  int64_t index = 0;  // in the part
};

// The size of an image and a hash of its pixels, to find equal images.
using Content = std::tuple<int, int, size_t>;  // height, width, hash
Content content_of(const Image& image) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.pixels.data()),
                               image.pixels.size());
  return {image.height, image.width, std::hash<std::string_view>()(bytes)};
}

// Whether the content is that of an image, whatever the file's name. BMP and PNM don't count, since
// a text file may begin with the same bytes.
bool is_image_by_content(const std::string& path) try {
  const RegularFile file(path);
  uint8_t start[12] = {};
  const auto bytes = std::span(start).first(std::min<uint64_t>(file.size(), sizeof start));
  file.read(0, std::as_writable_bytes(bytes));
  const Format format = format_of(bytes);
  return format != Format::unknown && format != Format::bmp && format != Format::pnm;
} catch (const FileError&) {
  return false;
}

class Checker {
 public:
  DataCheck found;

  void list(const std::string& path) {
    if (is_records(path)) return list_images(open_records({.path = path, .val_fraction = 0}));
    if (!cifar_folder(path).empty()) return list_images(open_cifar({.path = path}));
    const PartFolders parts = require_train(find_parts(path), path);
    found.has_val = !parts.val.empty();
    list_part(parts.train.empty() ? fs::path(path) : parts.train, train);
    if (found.has_val) list_part(parts.val, val);
    if (!parts.train.empty()) left_out_.add({.systems = entries_of(path).systems});
    found.left_out = left_out_lines(left_out_);
    for (std::string& line : unused_parts(path)) found.left_out.push_back(std::move(line));
    if (const std::string unread = unread_images(left_out_); !unread.empty())
      found.not_read_advice =
          unread + "; to convert them: " + conversion(left_out_, std::span(&path, 1));
    if (items_.empty()) refuse_compressed_records(path);
    if (items_.empty())
      throw DataError(path + ": no images in it (" + known_formats() + " are read)");
    count_classes();
  }

  // At most this many images, evenly spread; all are counted.
  void list(const DataSets& sets, int64_t most) {
    data_ = &sets;
    found.lost = sets.lost;
    found.has_val = sets.val != nullptr;
    for (const std::string& name : sets.classes) classes_[name];
    const int64_t all = sets.train->size() + (sets.val ? sets.val->size() : 0);
    const int64_t step = (all + most - 1) / most;
    for (const auto& [data, part] : {std::pair(sets.train.get(), train), {sets.val.get(), val}})
      for (int64_t i = 0; data && i < data->size(); ++i) {
        const std::string& name = sets.classes[data->label(i)];
        add(name, part);
        if (found.images++ % step == 0) items_.push_back({data->name(i), name, part, i});
      }
    list_counts();
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }

  void decode(int min_side, int threads, const std::function<void(int64_t)>& progress) {
    contents_.resize(items_.size());
    std::map<int64_t, std::string> damaged, flawed;
    std::mutex mutex;
    const auto look = [&](int64_t i) {
      std::string warning, damage;
      try {
        contents_[i] = content_of(image(i, &warning));
      } catch (const BadImage& e) {
        damage = e.what();
      } catch (const std::bad_alloc&) {
        throw MachineError(items_[i].path, ENOMEM);
      }
      const std::lock_guard lock(mutex);
      if (!damage.empty())
        damaged[i] = damage;
      else if (!warning.empty())
        flawed[i] = warning;
    };
    in_threads(size(), threads, look, std::chrono::milliseconds(100), progress);
    for (const auto& [i, what] : damaged) found.damaged.push_back({items_[i].path, what});
    for (const auto& [i, what] : flawed) found.flawed.push_back({items_[i].path, what});
    for (size_t i = 0; i < items_.size(); ++i)
      if (const auto [height, width, hash] = contents_[i];
          height > 0 && std::min(height, width) < min_side)
        found.tiny.push_back(
            {items_[i].path, std::to_string(width) + "x" + std::to_string(height)});
  }

  void compare() {
    std::map<Content, std::vector<size_t>> by_content;
    for (size_t i = 0; i < items_.size(); ++i)
      if (std::get<0>(contents_[i]) > 0) by_content[contents_[i]].push_back(i);
    for (size_t i = 0; i < items_.size(); ++i) {
      const auto& equal = by_content[contents_[i]];
      if (equal.size() > 1 && equal[0] == i) found.equal.push_back(group(equal));
    }
  }

 private:
  // Lists the images of a data set with many images per file.
  void list_images(DataSets sets) {
    own_ = std::move(sets);
    list(own_, std::numeric_limits<int32_t>::max());
  }

  void list_part(const fs::path& folder, Part part) {
    folders_[part] = folder;
    const auto folders = folders_in(folder);
    if (folders.empty()) return list_class(folder, part, "");
    left_out_.add({.systems = entries_of(folder).systems});
    for (const fs::path& file : files_in(folder))
      if (const std::string extension = extension_of(file);
          is_read(extension) || is_other_image(extension))
        found.outside.push_back(file.string());
    std::map<std::string, std::string> here;  // by canonical form
    for (const fs::path& one : folders) {
      const std::string name = one.filename().string(), form = canonical(name);
      if (const auto [at, added] = here.try_emplace(form, name); !added)
        add_alike({at->second, name});
      const std::string& known = names_.try_emplace(form, name).first->second;
      classes_[known];
      list_class(one, part, known);
    }
  }

  void add_alike(const std::vector<std::string>& names) {
    for (std::string& line : alike_names(names)) found.alike_classes.push_back(std::move(line));
  }

  void list_class(const fs::path& folder, Part part, const std::string& name) {
    ClassFolder scanned = scan_class(folder, folder);
    for (const std::string& file : scanned.files)
      items_.push_back({(folder / file).string(), name, part});
    const auto path_of = [&](const std::string& file) { return (folder / file).string(); };
    std::map<std::string, std::string> not_read;  // by path
    for (const std::string& file : scanned.left_out.unread)
      not_read[path_of(file)] = extension_of(file) + " files are not read";
    for (const std::string& file : scanned.left_out.others)
      if (is_other_image(extension_of(file)) || !is_image_by_content(path_of(file)))
        ++found.other_files;
      else
        not_read[path_of(file)] = "an image, but not by its extension";
    for (const auto& [path, what] : not_read) found.not_read.push_back({path, what});
    for (std::string& link : scanned.left_out.links) link = path_of(link);
    left_out_.add(scanned.left_out);
  }

  void add(const std::string& class_name, Part part) {
    ++(part == train ? classes_[class_name].train : classes_[class_name].val);
  }

  void count_classes() {
    found.images = size();
    for (const Item& item : items_)
      if (!item.class_name.empty()) add(item.class_name, item.part);
    list_counts();
  }

  void list_counts() {
    std::vector<std::string> names;
    for (auto& [name, count] : classes_) {
      names.push_back(name);
      count.name = name;
      found.classes.push_back(count);
      if (count.train == 0) found.empty_classes.push_back((folders_[train] / name).string());
      if (found.has_val && count.val == 0)
        found.empty_classes.push_back((folders_[val] / name).string());
    }
    add_alike(names);
  }

  Image image(int64_t i, std::string* warning) const {
    const Item& item = items_[i];
    const Dataset* const part = !data_               ? nullptr
                                : item.part == train ? data_->train.get()
                                                     : data_->val.get();
    const bool is_file =
        !part || (part->files() == part->size() && part->file(item.index) == item.path);
    if (!is_file) return part->image(item.index, 0);
    try {
      return decode_image(read_file(item.path, max_image_bytes), 0, warning);
    } catch (const FileError& e) {
      throw BadImage(e.what());
    }
  }

  EqualImages group(const std::vector<size_t>& members) {
    EqualImages equal;
    int64_t in_val = 0;
    for (const size_t i : members) {
      equal.paths.push_back(items_[i].path);
      in_val += items_[i].part == val;
      equal.in_several_classes |= items_[i].class_name != items_[members[0]].class_name;
    }
    equal.in_both_parts = in_val > 0 && in_val < static_cast<int64_t>(members.size());
    if (equal.in_both_parts) found.val_in_train += in_val;
    return equal;
  }

  std::vector<Item> items_;        // training first
  std::vector<Content> contents_;  // zeros: not decoded
  std::map<std::string, ClassCount> classes_;
  std::map<std::string, std::string> names_;  // of classes, by their canonical form
  LeftOut left_out_;
  fs::path folders_[2];  // of the parts
  DataSets own_{};
  const DataSets* data_ = nullptr;  // null: the items are files
};

}  // namespace

bool DataCheck::clean() const {
  return damaged.empty() && flawed.empty() && tiny.empty() && not_read.empty() && lost.empty() &&
         outside.empty() && empty_classes.empty() && alike_classes.empty() && equal.empty();
}

DataCheck check_data(const DataSets& sets, int64_t most, int min_side, int threads,
                     const std::function<void(int64_t, int64_t)>& progress) {
  Checker checker;
  checker.list(sets, most);
  checker.decode(min_side, threads, [&](int64_t done) { progress(done, checker.size()); });
  checker.compare();
  checker.found.looked_at = checker.size();
  return std::move(checker.found);
}

DataCheck check_data(const std::string& path, int min_side, int threads,
                     const std::function<void(int64_t, int64_t)>& progress) {
  Checker checker;
  checker.list(path);
  checker.decode(min_side, threads, [&](int64_t done) { progress(done, checker.size()); });
  checker.compare();
  return std::move(checker.found);
}

}  // namespace bv
