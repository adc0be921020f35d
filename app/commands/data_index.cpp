// data index DIR: writes the index files that --data and DALI need for other programs' TFRecords.
#include <cstdio>
#include <filesystem>

#include "app/commands/commands.h"
#include "app/commands/data_commands.h"
#include "base/error.h"
#include "base/files/file_io.h"
#include "base/text.h"
#include "data/class_names.h"
#include "data/records/lost_records.h"
#include "data/records/scan_records.h"
#include "data/sources.h"
#include "engine/console/progress_line.h"

namespace bv {

namespace {

namespace fs = std::filesystem;

enum class LabelBase : uint8_t { zero, one };
constexpr auto words(LabelBase) { return word_list("0", "1"); }

struct IndexOptions {
  std::string dir;
  std::optional<LabelBase> label_base;
  std::string class_names;
  OnBadImage on_bad_image = OnBadImage::fail;
  int workers = 0;
};

constexpr OptionRow rows[] = {
    positional("dir", "DIR", field<&IndexOptions::dir>,
               "folder of TFRecords, as they are or in train/ and validation/ (or val/)"),
    {"label_base", "", field<&IndexOptions::label_base>,
     "the first class's label in the records; auto: 0 if a record has it, else 1"},
    {"class_names", "FILE", field<&IndexOptions::class_names>,
     "names for labels that have none in the records: one per line, from --label-base on"},
    {"on_bad_image", "", field<&IndexOptions::on_bad_image>,
     "on a damaged record: stop, or leave it out"},
    {"workers", "N", field<&IndexOptions::workers>, "reading threads; 0: one for each core",
     between(0, 1024)}};

int index_records(const CommandLine& line, const std::vector<std::string>&) {
  const auto o = own_options<IndexOptions>(line);
  const std::string folder = require_folder(o.dir);
  const std::vector<RecordSet> sets = find_record_sets(folder);
  if (sets.empty()) refuse_compressed_records(folder);
  if (sets.empty())
    throw UserError(folder +
                    ": no TFRecords in it (NAME.tfrecord, NAME-00000-of-00003), nor in train/ or "
                    "validation/");
  int64_t files = 0;
  for (const RecordSet& set : sets) {
    files += static_cast<int64_t>(set.files.size());
    std::error_code error;
    if (const std::string path = folder + "/" + set.name + ".index"; fs::exists(path, error))
      throw UserError(
          path + " exists; remove it to rebuild it: " + way_to_rebuild(path, folder, set.files));
  }
  ScanOptions options{.skip_bad = o.on_bad_image == OnBadImage::skip,
                      .threads = decoding_threads(o.workers)};
  if (o.label_base) options.label_base = o.label_base == LabelBase::one;
  const std::vector<std::string> names =
      o.class_names.empty() ? std::vector<std::string>{} : read_class_names(o.class_names);
  std::vector<ScannedSet> scanned;
  {
    ProgressLine progress;
    scanned = scan_records(folder, sets, options,
                           [&](int64_t done) { progress.show(counted_of(done, files, "files")); });
  }
  if (!names.empty())
    for (ScannedSet& set : scanned) {
      check_class_names(set.index, names, "--class-names " + o.class_names, folder);
      set.index.classes = names;
    }
  std::vector<const RecordIndex*> indexes;
  for (const ScannedSet& set : scanned) indexes.push_back(&set.index);
  if (const std::string empty = empty_classes(scanned[0].index.classes, indexes); !empty.empty())
    print_error_line("warning: " + printable(empty, empty.npos));
  if (const std::string missing = missing_records(indexes); !missing.empty())
    print_error_line("warning: " + printable(missing, missing.npos));
  for (const ScannedSet& set : scanned) {
    const std::vector<std::string> idx = idx_texts(set.index);
    for (size_t i = 0; i < idx.size(); ++i)
      if (!idx[i].empty()) {
        const std::string path = idx_path(folder, set.index.files[i]);
        make_folders(fs::path(path).parent_path());
        write_text_file(path, idx[i]);
      }
    const std::string path = folder + "/" + set.name + ".index";
    write_text_file(path, index_text(set.index));
    if (set.skipped.count() > 0)
      print_error_line("left out " + set.skipped.text("damaged ") +
                       ", the first: " + printable(set.skipped.first, std::string::npos));
    std::printf("%s: %s in %s, %zu classes\n", path.c_str(),
                counted(static_cast<int64_t>(set.index.rows.size()), "image").c_str(),
                counted(static_cast<int64_t>(set.index.files.size()), "file").c_str(),
                set.index.classes.size());
  }
  return 0;
}

}  // namespace

constinit const Command data_index_command = {
    .name = "data index",
    .usage = "DIR [--label-base auto|0|1] [--class-names FILE]",
    .summary =
        "index TFRecords of other programs: NAME.index, with which --data opens them at once, and "
        ".idx for DALI",
    .own = rows,
    .run = index_records};

}  // namespace bv
