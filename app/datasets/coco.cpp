#include "app/datasets/coco.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/files/file.h"
#include "base/json.h"
#include "base/text.h"
#include "data/dataset.h"

namespace bv {

namespace {

// An item of "images", "annotations" or "categories", with the members that are used.
struct Item {
  std::optional<int64_t> id, image, category, width, height;
  std::string name, file;
  std::vector<double> box;
  bool crowd = false;
};

// Whether a name can be written on a line of a list.
bool is_plain(const std::string& name) { return printable(name, name.npos) == name; }

struct Coco {
  std::vector<Item> images, annotations, categories;
};

// Builds the items from the parser's events, since the tree of a large file takes too much memory.
// Depth 1 is the root, 2 a list in it, 3 an item, 4 a member of an item that isn't a single value.
class CocoReader final : public JsonEvents {
 public:
  explicit CocoReader(const std::string& path) : path_(path) {}
  Coco found;

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ == 3 && key_ == "iscrowd") item_.crowd = value;
    return true;
  }
  bool number_integer(int64_t value) override { return number(double(value), value); }
  bool number_unsigned(uint64_t value) override {
    return number(double(value), static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
  }
  bool number_float(double value, const std::string&) override {
    const bool whole = std::abs(value) < 1e15 && value == std::floor(value);
    return number(value, whole ? std::optional(static_cast<int64_t>(value)) : std::nullopt);
  }
  bool string(std::string& value) override {
    if (depth_ == 3 && key_ == "name") item_.name = std::move(value);
    if (depth_ == 3 && key_ == "file_name") item_.file = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ == 3) item_ = {};
    return true;
  }
  bool end_object() override {
    if (depth_-- == 3 && items_) items_->push_back(std::move(item_));
    return true;
  }
  bool start_array(size_t) override {
    if (++depth_ == 2)
      items_ = key_ == "images"        ? &found.images
               : key_ == "annotations" ? &found.annotations
               : key_ == "categories"  ? &found.categories
                                       : nullptr;
    return true;
  }
  bool end_array() override {
    if (depth_-- == 2) items_ = nullptr;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1 || depth_ == 3) key_ = std::move(name);
    return true;
  }
  bool binary(Json::binary_t&) override { return false; }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    throw DataError(path_ + ": not JSON, at byte " + std::to_string(position));
  }

 private:
  bool number(double value, std::optional<int64_t> whole) {
    if (depth_ == 4 && key_ == "bbox" && item_.box.size() < 5) item_.box.push_back(value);
    if (depth_ != 3) return true;
    if (key_ == "id") item_.id = whole;
    if (key_ == "image_id") item_.image = whole;
    if (key_ == "category_id") item_.category = whole;
    if (key_ == "width") item_.width = whole;
    if (key_ == "height") item_.height = whole;
    if (key_ == "iscrowd") item_.crowd = value != 0;
    return true;
  }

  const std::string& path_;
  int depth_ = 0;
  std::string key_;
  std::vector<Item>* items_ = nullptr;
  Item item_;
};

Coco read_coco(const std::string& path) try {
  constexpr uint64_t max_bytes = uint64_t{8} << 30;
  const std::vector<uint8_t> bytes = read_file(path, max_bytes);
  CocoReader reader(path);
  Json::sax_parse(bytes.begin(), bytes.end(), &reader);
  return std::move(reader.found);
} catch (const FileError& e) {
  throw DataError(path + ": " + e.what());
}

// The items by id. Throws if an id is missing or repeated.
std::map<int64_t, const Item*> by_id(const std::vector<Item>& items, const std::string& what,
                                     const std::string& path) {
  if (items.empty())
    throw DataError(path + ": has no '" + what +
                    "'; COCO's file of instances has images, annotations and categories");
  std::map<int64_t, const Item*> found;
  for (const Item& item : items)
    if (!item.id || !found.emplace(*item.id, &item).second)
      throw DataError(path + ": number " + std::to_string(&item - items.data()) + " of '" + what +
                      "' has no id, or one that is taken");
  return found;
}

std::vector<std::string> class_names(const Coco& coco, const std::string& path) {
  std::set<std::string> names;
  for (const Item& category : coco.categories) {
    if (category.name.empty() || !names.insert(category.name).second)
      throw DataError(path + ": two categories are called '" + printable(category.name) + "'");
    if (!is_plain(category.name))
      throw DataError(path +
                      ": a category's name has a control character: " + printable(category.name));
  }
  return {names.begin(), names.end()};
}

// The whole pixels that a box touches; nothing if the box isn't in the image.
std::optional<Region> pixels_of(const std::vector<double>& box, int64_t width, int64_t height) {
  if (box.size() != 4) return {};
  constexpr double rounding = 1;  // error of some tools that write such files
  const double left = box[0], top = box[1], right = left + box[2], bottom = top + box[3];
  const auto within = [](double begin, double end, int64_t size) {
    return begin >= -rounding && end <= double(size) + rounding && end > begin;
  };
  if (!within(left, right, width) || !within(top, bottom, height)) return {};
  const auto first = [](double begin) {
    return static_cast<int>(std::max(0.0, std::floor(begin)));
  };
  const auto past = [](double end, int64_t size) {
    return static_cast<int>(std::min(double(size), std::ceil(end)));
  };
  const Region pixels{.top = first(top),
                      .left = first(left),
                      .height = past(bottom, height) - first(top),
                      .width = past(right, width) - first(left)};
  if (pixels.width < 1 || pixels.height < 1) return {};
  return pixels;
}

class CocoLister {
 public:
  CocoLister(const std::string& path, const std::string& images)
      : path_(path), coco_(read_coco(path)) {
    images_ = by_id(coco_.images, "images", path);
    categories_ = by_id(coco_.categories, "categories", path);
    if (coco_.annotations.empty()) throw DataError(path + ": has no 'annotations'");
    result_.list.folder = std::filesystem::absolute(images).lexically_normal();
    result_.list.classes = class_names(coco_, path);
    result_.list.objects = true;
  }

  CocoList run(int min_side, bool skip_bad) {
    for (size_t i = 0; i < coco_.annotations.size(); ++i) add(i, min_side, skip_bad);
    auto& list = result_.list.images;
    std::ranges::stable_sort(list, {}, &ListedImage::path);
    if (list.empty()) throw DataError(path_ + ": it has no object that can be listed");
    return std::move(result_);
  }

 private:
  void add(size_t number, int min_side, bool skip_bad) {
    const Item& object = coco_.annotations[number];
    const auto refuse = [&](const std::string& why) {
      const std::string line = path_ + ": annotation " + std::to_string(number) +
                               (object.id ? " (id " + std::to_string(*object.id) + ")" : "") +
                               ": " + why;
      if (!skip_bad) throw DataError(line + " (--on-bad-image skip leaves such objects out)");
      if (result_.bad++ == 0) result_.first_bad = line;
    };
    const auto image = images_.find(object.image.value_or(-1));
    if (!object.image || image == images_.end()) return refuse("its image_id names no image");
    const auto category = categories_.find(object.category.value_or(-1));
    if (!object.category || category == categories_.end())
      return refuse("its category_id names no category");
    const Item& photo = *image->second;
    constexpr int64_t most = 1 << 15;
    if (photo.file.empty() || !photo.width || !photo.height || *photo.width > most ||
        *photo.height > most)
      return refuse("its image has no file_name, or no valid width and height");
    if (!is_plain(photo.file)) return refuse("its image's file_name has a control character");
    if (object.crowd) return void(++result_.crowds);
    const std::optional<Region> box = pixels_of(object.box, *photo.width, *photo.height);
    if (!box)
      return refuse("its bbox is not inside " + printable(photo.file) + ", " +
                    std::to_string(*photo.width) + "x" + std::to_string(*photo.height));
    if (std::min(box->width, box->height) < min_side) return void(++result_.small);
    const auto& classes = result_.list.classes;
    const auto label = std::ranges::lower_bound(classes, category->second->name) - classes.begin();
    result_.list.images.push_back(
        {.path = photo.file, .label = static_cast<int>(label), .box = *box});
  }

  const std::string& path_;
  const Coco coco_;
  std::map<int64_t, const Item*> images_, categories_;
  CocoList result_;
};

}  // namespace

CocoList list_coco(const std::string& json, const std::string& images, int min_side,
                   bool skip_bad) {
  return CocoLister(json, images).run(min_side, skip_bad);
}

}  // namespace bv
