#include "app/datasets/image_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files/file_io.h"
#include "base/json.h"
#include "base/text.h"
#include "base/unicode/canonical.h"
#include "data/class_names.h"
#include "data/dataset.h"
#include "data/folder_scan.h"
#include "data/left_out.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view title = "# barevision list 1", folder_title = "# folder ",
                           class_title = "# class ";
constexpr uint64_t max_list_bytes = uint64_t{4} << 30;

// Every pickle from protocol 2 on begins with this byte.
bool is_pickle(const std::string& text) { return text.starts_with('\x80'); }

// The names in the order of their labels, which must be 0, 1, 2 ...
std::vector<std::string> read_labels(const std::string& path) {
  constexpr uint64_t max_bytes = 64 << 20;
  const std::string text = read_text_file(path, max_bytes);
  const std::string expected = R"(; give JSON: {"cat": 0, "dog": 1})";
  if (is_pickle(text)) throw UserError("--labels " + path + ": a Python pickle" + expected);
  const Json map = parse_json_object(text, path);
  std::vector<std::string> names(map.size());
  for (const auto& [name, value] : map.items()) {
    const std::string number = scalar_text(value);
    const auto label = parse_integer(number);
    if (!value.is_number() || !label)
      throw UserError("--labels " + path + ": the label of '" + printable(name) +
                      "' is not a whole number" + expected);
    if (*label < 0 || *label >= static_cast<int64_t>(names.size()))
      throw UserError("--labels " + path + ": '" + printable(name) + "' has label " + number +
                      "; the labels of " + counted(static_cast<int64_t>(names.size()), "class") +
                      " are 0 to " + std::to_string(names.size() - 1));
    std::string& place = names[static_cast<size_t>(*label)];
    if (!place.empty() || name.empty())
      throw UserError("--labels " + path + ": label " + number + " has two names, or none");
    place = name;
  }
  return names;
}

// The folder's classes in the order given by the labels file.
std::vector<std::string> order_by(const std::string& path, const std::vector<std::string>& found) {
  const std::vector<std::string> names = read_labels(path);
  const ClassPositions positions(names), positions_found(found);
  for (const std::string& name : found)
    if (!positions.of(name))
      throw UserError("--labels " + path + ": has no label for the class '" + printable(name) +
                      "'" + lookalike_of(name, names));
  for (const std::string& name : names)
    if (!positions_found.of(name))
      throw UserError("--labels " + path + ": the data has no class '" + printable(name) + "'" +
                      lookalike_of(name, found));
  return names;
}

// Whether a name can be written on a line of a list or an index.
bool is_plain(const std::string& name) {
  return std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 0x7f; });
}
std::string not_plain(const std::string& name) {
  return printable(name) + ": a name with a control character; rename it";
}
void require_plain(const std::string& name) {
  if (!is_plain(name)) throw DataError(not_plain(name));
}

class ListParser {
 public:
  ListParser(const std::string& text, const std::string& path) : text_(text), path_(path) {
    list_.folder = fs::path(path).parent_path();
    if (list_.folder.empty()) list_.folder = ".";
  }

  ImageList run() {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line_;
      read_line(std::string_view(text_).substr(begin, end - begin));
      begin = end + 1;
    }
    if (list_.images.empty()) throw UserError(path_ + ": lists no images");
    list_.objects = with_box_ > 0;
    if (list_.objects && with_box_ != list_.images.size())
      throw UserError(path_ + ": some lines have a box and some have none");
    if (!named_) name_by_number();
    return std::move(list_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + " line " + std::to_string(line_) + ": " + what);
  }

  void read_line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_ == 1 && line.starts_with('\x80')) fail("a Python pickle; give a list: path label");
    if (line.starts_with('#')) return read_title(line);
    if (!line.empty()) read_image(line);
  }

  void read_title(std::string_view line) {
    if (line.starts_with("# barevision list") && line != title)
      fail("a list of another version; this program reads version 1");
    if (line.starts_with(folder_title)) list_.folder = line.substr(folder_title.size());
    if (!line.starts_with(class_title)) return;
    line.remove_prefix(class_title.size());
    const size_t space = std::min(line.find(' '), line.size());
    if (parse_integer(line.substr(0, space)) != static_cast<int64_t>(list_.classes.size()) ||
        space + 1 >= line.size())
      fail("expected '# class " + std::to_string(list_.classes.size()) + " NAME'");
    std::string name(line.substr(space + 1));
    if (!seen_.insert(canonical(name)).second)
      fail("names the class '" + printable(name) + "' twice");
    list_.classes.push_back(std::move(name));
    named_ = true;
  }

  void read_image(std::string_view line) {
    const size_t space = line.find_last_of(" \t");
    const auto label =
        space == line.npos ? std::optional<int64_t>() : parse_integer(line.substr(space + 1));
    if (!label || space == 0) fail("expected a path and its label, a whole number");
    constexpr int64_t most = 1000000;
    if (*label < 0 || *label >= (named_ ? static_cast<int64_t>(list_.classes.size()) : most))
      fail("label " + std::to_string(*label) + " is not one of " +
           (named_ ? "the " + std::to_string(list_.classes.size()) + " classes" : "0 to 999999"));
    ListedImage image{.path = std::string(line.substr(0, space)),
                      .label = static_cast<int>(*label)};
    take_box(image);
    const fs::path path(image.path);
    for (const auto& part : path)
      if (path.is_absolute() || part == "..")
        fail(printable(image.path) + " is not in the list's folder, " + list_.folder +
             " (# folder DIR names another)");
    image.path = path.lexically_normal();
    if (!is_plain(image.path)) fail(not_plain(image.path));
    list_.images.push_back(std::move(image));
  }

  // Moves the box "12,40,200,100", if one follows the last space, from the path into `box`.
  void take_box(ListedImage& image) {
    const size_t space = image.path.find_last_of(" \t");
    if (space == image.path.npos || space == 0) return;
    const std::vector<std::string> items = split(image.path.substr(space + 1), ',');
    if (items.size() != 4) return;
    int numbers[4];
    for (size_t i = 0; i < 4; ++i) {
      const auto [end, error] =
          std::from_chars(items[i].data(), items[i].data() + items[i].size(), numbers[i]);
      if (error != std::errc() || end != items[i].data() + items[i].size()) return;
    }
    constexpr int most = 1 << 15;
    const auto [left, top, width, height] = numbers;
    if (left < 0 || top < 0 || width < 1 || height < 1 || left > most - width ||
        top > most - height)
      fail("the box " + image.path.substr(space + 1) +
           " is not left,top,width,height within the image");
    image.box = {.top = top, .left = left, .height = height, .width = width};
    image.path.resize(space);
    ++with_box_;
  }

  void name_by_number() {
    int most = 0;
    for (const ListedImage& image : list_.images) most = std::max(most, image.label);
    list_.classes.reserve(most + 1);
    for (int i = 0; i <= most; ++i) list_.classes.push_back(std::to_string(i));
  }

  const std::string &text_, &path_;
  ImageList list_;
  int64_t line_ = 0;
  size_t with_box_ = 0;
  bool named_ = false;
  std::set<std::string> seen_;
};

}  // namespace

ImageList list_folder(const std::string& folder, const ListOptions& options) {
  if (data_kind(folder) == DataKind::cifar)
    throw DataError(folder +
                    ": CIFAR's files; ./launcher data unpack turns them into class folders");
  const PartFolders parts = find_parts(folder);
  if (!parts.val.empty())
    throw DataError(folder + ": has " + parts.val.filename().string() +
                    "/; list each part, with `data pack --name train` and `--name val`");
  const DataSets sets = open_dataset({.path = folder, .val_fraction = 0});
  if (sets.records) throw DataError(folder + ": already consists of records");
  const fs::path root = parts.train.empty() ? fs::path(folder) : parts.train;
  ImageList list{.folder = fs::absolute(root).lexically_normal(), .notes = all_notes(sets)};
  list.classes = options.labels.empty() ? sets.classes : order_by(options.labels, sets.classes);
  const size_t classes = static_cast<size_t>(options.classes.value_or(INT32_MAX));
  if (classes < list.classes.size()) list.classes.resize(classes);
  for (const std::string& name : list.classes) require_plain(name);
  std::vector<int> counts(list.classes.size());
  const ClassPositions positions(list.classes);
  const std::string prefix = root.string() + "/";
  for (int64_t i = 0; i < sets.train->size(); ++i) {
    const auto at = positions.of(sets.classes[sets.train->label(i)]);
    if (!at) continue;
    const auto label = static_cast<int>(*at);
    if (counts[label]++ >= options.per_class.value_or(INT32_MAX)) continue;
    std::string path = sets.train->file(i).substr(prefix.size());
    require_plain(path);
    list.images.push_back({.path = std::move(path), .label = label});
  }
  return list;
}

std::string list_text(const ImageList& list) {
  std::string text = std::string(title) + "\n" + std::string(folder_title) + list.folder + "\n";
  for (size_t i = 0; i < list.classes.size(); ++i)
    text += std::string(class_title) + std::to_string(i) + " " + list.classes[i] + "\n";
  for (const auto& [path, label, b] : list.images)
    text += (path.starts_with('#') ? "./" : "") + path +
            (list.objects ? " " + std::to_string(b.left) + "," + std::to_string(b.top) + "," +
                                std::to_string(b.width) + "," + std::to_string(b.height)
                          : "") +
            " " + std::to_string(label) + "\n";
  return text;
}

ImageList parse_list(const std::string& text, const std::string& path) {
  return ListParser(text, path).run();
}

ImageList read_list(const std::string& path) {
  return parse_list(read_text_file(path, max_list_bytes), path);
}

}  // namespace bv
