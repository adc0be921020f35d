#include "data/records/scan_records.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "data/decode/decode.h"
#include "data/file.h"
#include "data/folder_scan.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"
#include "data/survey/threads.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr int64_t max_label = 1000000;

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return c >= '0' && c <= '9'; });
}

bool has_record_extension(std::string_view name) {
  return name.ends_with(".tfrecord") || name.ends_with(".tfrecords") || name.ends_with(".tfrec");
}

// "train" of train-00000-of-01024, with or without an extension; empty: it is no such name.
std::string name_of_shards(const std::string& file) {
  const std::string stem = has_record_extension(file) ? fs::path(file).stem().string() : file;
  const size_t of = stem.rfind("-of-"), dash = of == stem.npos ? of : stem.rfind('-', of - 1);
  if (of == stem.npos || of == 0 || dash == stem.npos || dash == 0) return "";
  if (!all_digits(stem.substr(of + 4)) || !all_digits(stem.substr(dash + 1, of - dash - 1)))
    return "";
  return stem.substr(0, dash);
}

bool is_record_file(const std::string& name) {
  return has_record_extension(name) || !name_of_shards(name).empty();
}

// The folder itself, and those in it that imagenet-tools makes.
std::vector<fs::path> places_in(const std::string& folder) {
  std::vector<fs::path> places = {folder};
  for (const fs::path& inner : folders_in(folder)) {
    const std::string name = inner.filename();
    if (name == "train" || is_val_name(name)) places.push_back(inner);
  }
  return places;
}

// As a record says it.
struct Found {
  uint64_t offset;
  uint32_t size;
  int64_t label;
  std::string text, name;
};

struct ScannedFile {
  std::vector<Found> records;
  int64_t skipped = 0;
  std::string first_skipped;
};

std::string place_of(const std::string& path, int64_t record, uint64_t offset) {
  return path + ": record " + std::to_string(record) + " at byte " + std::to_string(offset) + ": ";
}

// A name that can stand in an index; of a record without one its file's and its number.
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
  FileScanner(const std::string& folder, const std::string& file, bool skip_bad)
      : path_(folder + "/" + file), name_(file), skip_bad_(skip_bad), file_(path_) {}

  ScannedFile run() {
    if (file_.size() == 0) throw DataError(path_ + ": is empty: it has no records");
    int64_t number = 0;
    for (uint64_t at = 0; at < file_.size(); ++number) {
      const uint64_t payload = payload_at(at, number);
      read(at, payload, number);
      at += payload + record_overhead;
    }
    return std::move(found_);
  }

 private:
  // Behind a wrong length there are no records to be found.
  uint64_t payload_at(uint64_t at, int64_t number) const {
    const uint64_t left = file_.size() - at;
    std::string head(std::min<uint64_t>(record_head, left), '\0');
    file_.read(at, std::as_writable_bytes(std::span(head)));
    const std::optional<uint64_t> length = payload_length(head);
    if (head.size() < record_head || (length && *length > left - record_overhead))
      throw DataError(place_of(path_, number, at) + "the file is cut off");
    if (!length)
      throw DataError(place_of(path_, number, at) +
                      (number == 0 ? "not a TFRecord file (or a compressed one)"
                                   : "the checksum of its length is wrong"));
    if (*length > 2 * max_image_bytes)
      throw DataError(place_of(path_, number, at) + "no picture has " + std::to_string(*length) +
                      " bytes");
    return *length;
  }

  void read(uint64_t at, uint64_t payload, int64_t number) try {
    record_.resize(payload + record_overhead);
    file_.read(at, std::as_writable_bytes(std::span(record_)));
    const std::optional<std::string_view> content = first_record(record_);
    if (!content) throw BadImage("its checksum is wrong");
    PictureExample picture = parse_example(*content);
    if (!picture.label) throw BadImage("it has no label (image/class/label or label)");
    if (*picture.label < 0 || *picture.label > max_label)
      throw BadImage("its label is " + std::to_string(*picture.label));
    found_.records.push_back({.offset = at,
                              .size = static_cast<uint32_t>(record_.size()),
                              .label = *picture.label,
                              .text = picture.text,
                              .name = name_of(picture, name_, static_cast<size_t>(number))});
  } catch (const BadImage& e) {
    const std::string line = place_of(path_, number, at) + e.what();
    if (!skip_bad_)
      throw DataError(line + " (data index --on-bad-image skip leaves such records out)");
    if (found_.skipped++ == 0) found_.first_skipped = line;
  }

  std::string path_, name_;
  bool skip_bad_;
  RegularFile file_;
  std::string record_;
  ScannedFile found_;
};

// "offset size" of each record, if there is such a file.
void check_idx(const std::string& folder, const std::string& file, const ScannedFile& found) try {
  const std::string path = idx_path(folder, file);
  std::error_code error;
  if (found.skipped > 0 || !fs::exists(path, error)) return;
  const std::vector<uint8_t> bytes = read_file(path, uint64_t{1} << 32);
  std::string expected;
  for (const Found& record : found.records)
    expected += std::to_string(record.offset) + " " + std::to_string(record.size) + "\n";
  if (!std::ranges::equal(bytes, expected, {}, {}, [](char c) { return static_cast<uint8_t>(c); }))
    throw DataError(path + ": is not of " + folder + "/" + file + "; remove it");
} catch (const FileError& e) {
  throw DataError(idx_path(folder, file) + ": " + e.what());
}

using Scanned = std::vector<std::vector<ScannedFile>>;  // by set and file

template <class Look>
void for_each(const Scanned& sets, Look look) {
  for (const auto& files : sets)
    for (const ScannedFile& file : files)
      for (const Found& record : file.records) look(record);
}

// The classes from `base` to the highest label: by their texts, if all have one, else by number.
std::vector<std::string> names_of_classes(const Scanned& sets, int64_t base) {
  std::map<int64_t, std::string> texts;
  int64_t highest = base;
  for_each(sets, [&](const Found& record) {
    std::string& text = texts[record.label];
    if (!text.empty() && !record.text.empty() && text != record.text)
      throw DataError("label " + std::to_string(record.label) + " is called '" + text + "' and '" +
                      record.text + "' in different records");
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
      std::string name = name_of_shards(file);
      if (name.empty()) name = inner ? place.filename().string() : "records";
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
      if (is_record_file(entry.path().filename()) && entry.is_regular_file(error)) return true;
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
      scanned[s][f] = FileScanner(folder, file, options.skip_bad).run();
    } catch (const FileError& e) {
      throw DataError(folder + "/" + file + ": " + e.what());
    }
    check_idx(folder, file, scanned[s][f]);
  };
  in_threads(static_cast<int64_t>(all.size()), options.threads, scan,
             std::chrono::milliseconds(100), progress);

  int64_t lowest = max_label;
  for_each(scanned, [&](const Found& record) { lowest = std::min(lowest, record.label); });
  const int64_t base = options.label_base.value_or(lowest == 0 ? 0 : 1);
  if (lowest < base) throw DataError(folder + ": has label 0; --label-base 0 begins with it");
  const std::vector<std::string> classes = names_of_classes(scanned, base);
  std::vector<ScannedSet> result;
  for (size_t s = 0; s < sets.size(); ++s) {
    ScannedSet set{.name = sets[s].name, .index = index_of(sets[s], scanned[s], classes, base)};
    for (const ScannedFile& file : scanned[s]) {
      if (set.skipped == 0) set.first_skipped = file.first_skipped;
      set.skipped += file.skipped;
    }
    if (set.index.rows.empty())
      throw DataError(folder + ": none of the records of " + set.name + " can be read");
    result.push_back(std::move(set));
  }
  return result;
}

}  // namespace bv
