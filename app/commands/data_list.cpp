// data list DIR LIST: lists the pictures of class folders, or the objects of COCO's photos.
#include <cstdio>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "app/datasets/coco.h"
#include "app/datasets/image_list.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

constexpr int min_object_side = 32;

struct DataListOptions {
  std::vector<std::string> files;
  std::string labels, coco, images;
  std::optional<int> classes, per_class;
  OnBadImage on_bad_image = OnBadImage::fail;
};
constexpr OptionRow rows[] = {
    positional("files", "[DIR] LIST", field<&DataListOptions::files>,
               "folder of class folders (omit it with --coco), and the new file to write: its "
               "lines are path and label, or path, box and label, and a label is the place of its "
               "class among the names at the top, counted from 0"),
    {"labels", "MAP.json", field<&DataListOptions::labels>,
     "the classes' labels, {\"cat\": 0, \"dog\": 1}; default: by sorted name"},
    {"classes", "N", field<&DataListOptions::classes>, "only the first N classes", between(2, 1e6)},
    {"per_class", "K", field<&DataListOptions::per_class>, "only the first K images of each class",
     between(1, 1e9)},
    {"coco", "FILE.json", field<&DataListOptions::coco>,
     "COCO's file of instances: a line for each object, which becomes an image of its class, cut "
     "out "
     "by its box; crowds and objects below 32 pixels high or wide are left out"},
    {"images", "DIR", field<&DataListOptions::images>, "with --coco: the folder of its photos"},
    {"on_bad_image", "", field<&DataListOptions::on_bad_image>,
     "with --coco: what to do with an object whose box isn't inside its photo"}};

void refuse_existing(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error)))
    throw UserError("LIST " + path + " exists; name a new file");
}

std::string counts(const ImageList& list) {
  std::vector<ClassCount> classes;
  for (const std::string& name : list.classes) classes.push_back({.name = name});
  for (const ListedImage& image : list.images) ++classes[static_cast<size_t>(image.label)].train;
  return class_table(classes, false);
}

int list_coco_file(const DataListOptions& o) {
  if (o.files.size() != 1)
    throw UserError("data list --coco FILE.json --images DIR takes one LIST");
  if (o.images.empty())
    throw UserError("--coco " + o.coco + ": needs --images DIR, the folder of its photos");
  if (!o.labels.empty() || o.classes || o.per_class)
    throw UserError("--labels, --classes and --per-class need a folder, not --coco");
  refuse_existing(o.files[0]);
  const CocoList found = list_coco(o.coco, require_folder(o.images), min_object_side,
                                   o.on_bad_image == OnBadImage::skip);
  write_text_file(o.files[0], list_text(found.list));
  std::string left_out;
  if (found.crowds > 0) left_out += ", " + counted(found.crowds, "crowd");
  if (found.small > 0) left_out += ", " + std::to_string(found.small) + " below 32 pixels";
  if (found.bad > 0) left_out += ", " + std::to_string(found.bad) + " bad ones";
  if (found.bad > 0) print_error_line("skipped, the first of them: " + found.first_bad);
  std::printf("%s: %s, %zu classes%s\n%s", o.files[0].c_str(),
              counted(static_cast<int64_t>(found.list.images.size()), "object").c_str(),
              found.list.classes.size(),
              left_out.empty() ? "" : ("; left out: " + left_out.substr(2)).c_str(),
              counts(found.list).c_str());
  return 0;
}

int list_data(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<DataListOptions>(line);
  if (!o.coco.empty()) return list_coco_file(o);
  if (!o.images.empty()) throw UserError("--images " + o.images + ": needs --coco");
  if (o.files.size() != 2) throw UserError("data list needs DIR and LIST: a folder and a new file");
  refuse_existing(o.files[1]);
  const ImageList list =
      list_folder(require_folder(o.files[0]),
                  {.labels = o.labels, .classes = o.classes, .per_class = o.per_class});
  write_text_file(o.files[1], list_text(list));
  for (const std::string& note : list.notes) print_error_line(printable(note, note.npos));
  std::printf("%s: %s, %zu classes\n%s", o.files[1].c_str(),
              counted(static_cast<int64_t>(list.images.size()), "image").c_str(),
              list.classes.size(), counts(list).c_str());
  return 0;
}

}  // namespace

constinit const Command data_list_command = {
    .name = "data list",
    .usage = "DIR LIST, or --coco FILE.json --images DIR LIST",
    .summary = "list the images of class folders, or the objects in COCO's images, for data pack",
    .own = rows,
    .run = list_data};

}  // namespace bv
