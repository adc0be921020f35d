// data check PATH: decodes every file and reports what would spoil a run.
#include "data/dataset_stats/data_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ranges>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/console/progress_line.h"

namespace bv {

namespace {

struct CheckOptions {
  std::string path;
  int min_side = 32;
  bool json = false;
  int workers = 0;
};
constexpr OptionRow rows[] = {
    positional("path", "PATH", field<&CheckOptions::path>,
               "data as for --data, or a folder of images"),
    {"min_side", "N", field<&CheckOptions::min_side>,
     "pixels; an image with a shorter side is tiny", between(1, 32768)},
    {"json", "", field<&CheckOptions::json>, "one JSON object instead of text"},
    {"workers", "N", field<&CheckOptions::workers>, "decoding threads; 0: one for each core",
     between(0, 1024)}};

constexpr size_t most_empty_classes = 20;

std::string shown(const std::string& path) { return printable(path, path.npos); }

// "damaged: 2", then the items.
template <class Item, class Show>
std::string section(const std::string& title, const std::vector<Item>& items, const Show& show,
                    size_t most = SIZE_MAX) {
  if (items.empty()) return "";
  std::string text = title + ": " + std::to_string(items.size()) + "\n";
  for (const Item& item : items | std::views::take(most)) text += "  " + show(item) + "\n";
  if (items.size() > most)
    text += "  and " + std::to_string(items.size() - most) + " more (--json lists them)\n";
  return text;
}

std::string shown_remark(const FileRemark& remark) {
  return shown(remark.path) + ": " + shown(remark.what);
}

std::string shown_equal(const EqualImages& equal) {
  std::string text;
  for (const std::string& path : equal.paths) text += (text.empty() ? "" : " = ") + shown(path);
  if (equal.in_both_parts) text += " (in train and val)";
  if (equal.in_several_classes) text += " (in different classes)";
  return text;
}

std::string balance(const DataCheck& found) {
  if (found.classes.size() < 2) return "";
  const auto [least, most] = std::ranges::minmax(found.classes, {}, &ClassCount::train);
  std::vector<ClassCount> classes = found.classes;
  std::erase_if(classes, [](const ClassCount& c) { return c.train == 0 && c.val == 0; });
  return class_table(classes, found.has_val) + "the largest class has " +
         std::to_string(most.train) + (found.has_val ? " training images" : " images") +
         ", the smallest " + std::to_string(least.train) + "\n";
}

std::string text_of(const DataCheck& found, const std::string& path, int min_side) {
  std::string text =
      path + ": " + counted(found.images, "image") +
      (found.classes.empty() ? ", no class folders"
                             : ", " + std::to_string(found.classes.size()) + " classes") +
      (found.other_files > 0 ? ", other files: " + std::to_string(found.other_files) : "") + "\n";
  text += section("damaged", found.damaged, shown_remark);
  if (!found.damaged.empty())
    text += "  damaged images end a run; --on-bad-image skip leaves them out\n";
  text += section("decoded with a warning", found.flawed, shown_remark);
  text += section("with a side below " + std::to_string(min_side) + " pixels", found.tiny,
                  shown_remark);
  text += section("images that are not read", found.not_read, shown_remark);
  if (!found.not_read_advice.empty()) text += "  " + shown(found.not_read_advice) + "\n";
  for (const std::string& line : found.lost) text += shown(line) + "\n";
  text += section("images outside the class folders", found.outside, shown);
  text += section("classes without images", found.empty_classes, shown, most_empty_classes);
  text += section("classes of nearly the same name", found.alike_classes, shown);
  text += section("equal images", found.equal, shown_equal);
  if (found.val_in_train > 0)
    text += "images of val that are in train too: " + std::to_string(found.val_in_train) + "\n";
  for (const std::string& line : found.left_out) text += shown(line) + "\n";
  return text + balance(found) + (found.clean() ? "clean\n" : "");
}

Json json_of(const std::vector<FileRemark>& remarks) {
  Json list = Json::array();
  for (const FileRemark& r : remarks) list.push_back({{"path", r.path}, {"what", r.what}});
  return list;
}

Json json_of(const DataCheck& found) {
  Json equal = Json::array(), classes = Json::array();
  for (const EqualImages& e : found.equal)
    equal.push_back({{"paths", e.paths},
                     {"in_both_parts", e.in_both_parts},
                     {"in_several_classes", e.in_several_classes}});
  for (const ClassCount& c : found.classes) {
    Json& counts = classes.emplace_back(Json{{"class", c.name}});
    counts[found.has_val ? "train" : "images"] = c.train;
    if (found.has_val) counts["val"] = c.val;
  }
  Json all = {{"images", found.images},
              {"other_files", found.other_files},
              {"clean", found.clean()},
              {"damaged", json_of(found.damaged)},
              {"flawed", json_of(found.flawed)},
              {"tiny", json_of(found.tiny)},
              {"not_read", json_of(found.not_read)},
              {"outside", found.outside},
              {"empty_classes", found.empty_classes},
              {"alike_classes", found.alike_classes},
              {"equal", equal},
              {"val_in_train", found.val_in_train},
              {"left_out", found.left_out},
              {"classes", classes}};
  if (!found.lost.empty()) all["lost"] = found.lost;
  return all;
}

int check(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<CheckOptions>(line);
  const std::string path = require_data(o.path);
  DataCheck found;
  {
    ProgressLine progress;
    found = check_data(
        path, o.min_side, decoding_threads(o.workers),
        [&](int64_t done, int64_t images) { progress.show(counted_of(done, images, "images")); });
  }
  std::fputs((o.json ? to_line(json_of(found)) + "\n" : text_of(found, path, o.min_side)).c_str(),
             stdout);
  return found.clean() ? 0 : 1;
}

}  // namespace

constinit const Command data_check_command = {
    .name = "data check",
    .usage = "PATH [--min-side N] [--json]",
    .summary =
        "decode every image of a data set; list damaged, tiny, unsupported and duplicate images "
        "(in train and val, or in different classes) and empty classes; count the images of each "
        "class; exit code 1 if anything is found",
    .own = rows,
    .run = check};

}  // namespace bv
