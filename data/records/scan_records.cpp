#include "data/records/scan_records.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"
#include "base/threads.h"
#include "data/decode/decode.h"
#include "data/folder_scan.h"
#include "data/records/shard_names.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr int64_t max_label = 1000000;

bool is_record_file(const std::string& name) {
  return has_record_extension(name) || shard_name(name);
}

// The folder itself, and the subfolders that imagenet-tools creates.
std::vector<fs::path> places_in(const std::string& folder) {
  std::vector<fs::path> places = {folder};
  const FolderEntries entries = entries_of(folder);
  for (const auto* inner : {&entries.folders, &entries.linked_folders, &entries.lost})
    for (const fs::path& path : *inner)
      if (const std::string name = path.filename(); name == "train" || is_val_name(name))
        places.push_back(path);
  return places;
}

// A record: its place in the file, its label, and the names in it.
struct Found {
  uint64_t offset;
  uint32_t size, number;
  int64_t label;
  std::string text, name;
};

struct ScannedFile {
  std::string path;
  std::vector<Found> records;
  int64_t skipped = 0;
  std::string first_skipped;
};

std::string place_of(const std::string& path, int64_t record, uint64_t offset) {
  return path + ": record " + std::to_string(record) + " at byte " + std::to_string(offset) + ": ";
}

// The record's name if it is valid in an index; otherwise its file's name and its number.
std::string name_of(const PictureExample& picture, const std::string& file, size_t number) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  if (!picture.name.empty() && std::ranges::none_of(picture.name, is_control)) return picture.name;
  std::string digits = std::to_string(number);
  digits.insert(0, 7 - std::min<size_t>(7, digits.size()), '0');
  const auto bytes = std::span(reinterpret_cast<const uint8_t*>(picture.image.data()),
                               std::min<size_t>(picture.image.size(), 12));
  return fs::path(file).filename().string() + "-" + digits + "." +
         std::string(extension_for(bytes));
}

class FileScanner {
 public:
  FileScanner(const std::string& folder, const std::string& file, const ScanOptions& options)
      : name_(file),
        skip_bad_(options.skip_bad),
        base_(options.label_base.value_or(0)),
        found_{.path = folder + "/" + file, .records = {}},
        file_(found_.path) {}

  ScannedFile run() {
    uint64_t at = 0;
    uint32_t number = 0;
    try {
      do {
        const uint64_t payload = payload_at(at, number);
        read(at, payload, number++);
        at += payload + record_overhead;
      } while (at < file_.size());
    } catch (const BadImage& e) {  // after a wrong length no record can be found
      leave_out(at, number, e.what());
    }
    return std::move(found_);
  }

 private:
  uint64_t payload_at(uint64_t at, uint32_t number) const {
    const uint64_t left = file_.size() - at;
    if (left == 0) throw BadImage("the file is empty");
    std::string head(std::min<uint64_t>(record_head, left), '\0');
    file_.read(at, std::as_writable_bytes(std::span(head)));
    const std::optional<uint64_t> length = payload_length(head);
    if (left < record_overhead || (length && *length > left - record_overhead))
      throw BadImage("the file is cut off");
    if (!length)
      throw BadImage(number == 0 ? "not a TFRecord file (or a compressed one)"
                                 : "the checksum of its length is wrong");
    if (*length > 2 * max_image_bytes)
      throw BadImage("a record of " + std::to_string(*length) + " bytes is too large");
    return *length;
  }

  void read(uint64_t at, uint64_t payload, uint32_t number) try {
    record_.resize(payload + record_overhead);
    file_.read(at, std::as_writable_bytes(std::span(record_)));
    const std::optional<std::string_view> content = first_record(record_);
    if (!content) throw BadImage("its checksum is wrong");
    PictureExample picture = parse_example(*content);
    if (!picture.label) throw BadImage("it has no label (image/class/label or label)");
    if (*picture.label < base_ || *picture.label > max_label)
      throw BadImage("its label is " + std::to_string(*picture.label) +
                     (*picture.label == 0 ? "; use --label-base 0" : ""));
    found_.records.push_back({.offset = at,
                              .size = static_cast<uint32_t>(record_.size()),
                              .number = number,
                              .label = *picture.label,
                              .text = picture.text,
                              .name = name_of(picture, name_, number)});
  } catch (const BadImage& e) {
    leave_out(at, number, e.what());
  }

  void leave_out(uint64_t at, uint32_t number, const std::string& why) {
    const std::string line = place_of(found_.path, number, at) + why;
    if (!skip_bad_)
      throw DataError(line +
                      " (--on-bad-image skip leaves such records out; data index has it too)");
    if (found_.skipped++ == 0) found_.first_skipped = line;
  }

  const std::string name_;
  const bool skip_bad_;
  const int64_t base_;
  ScannedFile found_;
  const RegularFile file_;
  std::string record_;
};

// Compares the records with the file's .idx ("offset size" of each record), if there is one.
void check_idx(const std::string& folder, const std::string& file, const ScannedFile& found) try {
  const std::string path = idx_path(folder, file);
  std::error_code error;
  if (found.skipped > 0 || !fs::exists(path, error)) return;
  const std::vector<uint8_t> bytes = read_file(path, uint64_t{1} << 32);
  std::string expected;
  for (const Found& record : found.records)
    expected += std::to_string(record.offset) + " " + std::to_string(record.size) + "\n";
  if (!std::ranges::equal(bytes, expected, {}, {}, [](char c) { return static_cast<uint8_t>(c); }))
    throw DataError(path + ": doesn't match " + folder + "/" + file + "; remove it");
} catch (const FileError& e) {
  throw DataError(idx_path(folder, file) + ": " + e.what());
}

using Scanned = std::vector<std::vector<ScannedFile>>;  // by set and file

template <class Look>
void for_each(const Scanned& sets, Look look) {
  for (const auto& files : sets)
    for (const ScannedFile& file : files)
      for (const Found& record : file.records) look(record, file.path);
}

// Names of the classes from `base` to the highest label: their texts if all have one, else numbers.
std::vector<std::string> names_of_classes(const Scanned& sets, int64_t base) {
  std::map<int64_t, std::string> texts;
  int64_t highest = base;
  for_each(sets, [&](const Found& record, const std::string& path) {
    std::string& text = texts[record.label];
    if (!text.empty() && !record.text.empty() && text != record.text)
      throw DataError(place_of(path, record.number, record.offset) + "its label, " +
                      std::to_string(record.label) +
                      ", has another name (image/class/text) than in earlier records");
    if (!record.text.empty()) text = record.text;
    highest = std::max(highest, record.label);
  });
  std::map<std::string, int> uses;
  bool named = true;
  for (const auto& [label, text] : texts) {
    ++uses[text];
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    named = named && !text.empty() && std::ranges::none_of(text, is_control);
  }
  std::vector<std::string> names;
  for (int64_t label = base; label <= highest; ++label) {
    const auto at = texts.find(label);
    const std::string number = std::to_string(label);
    if (!named || at == texts.end())
      names.push_back(number);
    else  // ImageNet has two classes called crane
      names.push_back(uses[at->second] == 1 ? at->second : at->second + " " + number);
  }
  return names;
}

RecordIndex index_of(const RecordSet& set, const std::vector<ScannedFile>& files,
                     const std::vector<std::string>& classes, int64_t base) {
  RecordIndex index{.classes = classes, .files = set.files, .rows = {}};
  for (uint32_t i = 0; i < files.size(); ++i) {
    uint32_t number = 0;
    for (const Found& record : files[i].records)
      index.add({.offset = record.offset,
                 .size = record.size,
                 .file = i,
                 .label = static_cast<uint32_t>(record.label - base),
                 .number = number++},
                record.name);
  }
  return index;
}

}  // namespace

std::vector<RecordSet> find_record_sets(const std::string& folder) {
  std::map<std::string, std::vector<std::string>> sets;
  for (const fs::path& place : places_in(folder))
    for (const fs::path& path : files_in(place)) {
      const std::string file = path.filename();
      if (!is_record_file(file)) continue;
      const bool inner = place != fs::path(folder);
      const std::optional<ShardName> shard = shard_name(file);
      const std::string name = shard ? shard->set : inner ? place.filename().string() : "records";
      sets[name].push_back(inner ? place.filename() / file : fs::path(file));
    }
  std::vector<RecordSet> found;
  for (auto& [name, files] : sets) {
    std::ranges::sort(files);
    found.push_back({name, std::move(files)});
  }
  return found;
}

bool has_record_files(const std::string& folder) {
  std::error_code error;
  for (const fs::path& place : places_in(folder))
    for (const auto& entry : fs::directory_iterator(place, error))
      if (is_record_file(entry.path().filename()) && !entry.is_directory(error)) return true;
  return false;
}

std::string idx_path(const std::string& folder, const std::string& file) {
  const fs::path path(file);
  if (path.has_parent_path())
    return fs::path(folder) / "idx_files" / path.parent_path() /
           (path.filename().string() + ".idx");
  const bool extension = has_record_extension(file);
  return fs::path(folder) / ((extension ? path.stem().string() : file) + ".idx");
}

std::vector<ScannedSet> scan_records(const std::string& folder, const std::vector<RecordSet>& sets,
                                     const ScanOptions& options,
                                     const std::function<void(int64_t)>& progress) {
  if (!have_records) throw DataError(folder + ": " + without_records());
  std::vector<std::pair<size_t, size_t>> all;  // set and file
  Scanned scanned(sets.size());
  for (size_t s = 0; s < sets.size(); ++s) {
    scanned[s].resize(sets[s].files.size());
    for (size_t f = 0; f < sets[s].files.size(); ++f) all.emplace_back(s, f);
  }
  const auto scan = [&](int64_t i) {
    const auto [s, f] = all[static_cast<size_t>(i)];
    const std::string& file = sets[s].files[f];
    try {
      scanned[s][f] = FileScanner(folder, file, options).run();
    } catch (const FileError& e) {
      throw DataError(folder + "/" + file + ": " + e.what());
    }
    check_idx(folder, file, scanned[s][f]);
  };
  in_threads(static_cast<int64_t>(all.size()), options.threads, scan,
             std::chrono::milliseconds(100), progress);

  int64_t lowest = max_label;
  for_each(scanned, [&](const Found& record, const std::string&) {
    lowest = std::min(lowest, record.label);
  });
  const int64_t base = options.label_base.value_or(lowest == 0 ? 0 : 1);
  const std::vector<std::string> classes = names_of_classes(scanned, base);
  std::vector<ScannedSet> result;
  for (size_t s = 0; s < sets.size(); ++s) {
    ScannedSet set{.name = sets[s].name, .index = index_of(sets[s], scanned[s], classes, base)};
    for (const ScannedFile& file : scanned[s]) {
      if (set.skipped == 0) set.first_skipped = file.first_skipped;
      set.skipped += file.skipped;
    }
    if (set.index.rows.empty())
      throw DataError(folder + ": none of the records of " + set.name +
                      " can be read, the first: " + set.first_skipped);
    result.push_back(std::move(set));
  }
  return result;
}

}  // namespace bv
