#include "data/records/scan_records.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/files/file.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/decode/decode.h"
#include "data/folder_scan.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

constexpr int64_t max_label = 1000000;

// The label of a record whose class is its text, until all texts are known.
constexpr int64_t by_text = -1;

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
  SkippedRecords skipped = {};
};

std::string place_of(const std::string& path, int64_t record, uint64_t offset) {
  return path + ": record " + std::to_string(record) + " at byte " + std::to_string(offset) + ": ";
}

bool has_control(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

// The record's name if it is valid in an index; otherwise its file's name and its number.
std::string name_of(const PictureExample& picture, const std::string& file, size_t number) {
  if (!picture.name.empty() && !has_control(picture.name)) return picture.name;
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
      if (file_.size() == 0)
        leave_out(found_.path + ": ", &SkippedRecords::files, e);
      else
        leave_out(place_of(found_.path, number, at),
                  number == 0 ? &SkippedRecords::files : &SkippedRecords::rests, e);
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
    if (!length && number == 0) refuse_other_file();
    if (!length) throw BadImage("the checksum of its length is wrong");
    if (*length > 2 * max_image_bytes)
      throw BadImage("a record of " + std::to_string(*length) + " bytes is too large");
    return *length;
  }

  [[noreturn]] void refuse_other_file() const {
    FileView view(file_);
    const auto start = view.at(0, stranger_bytes);
    const std::string file = shell_word(found_.path), what = name_of_stranger(start);
    if (is_git_lfs_pointer(start)) throw MendableImage(std::string(git_lfs_pointer));
    if (start.size() > 1 && start[0] == 0x1F && start[1] == 0x8B)
      throw MendableImage("compressed by gzip: `mv " + file + " " + file + ".gz && gunzip " + file +
                          ".gz`");
    throw BadImage("not a TFRecord file (or a compressed one)" + (what.empty() ? "" : ": " + what));
  }

  // The first record's label is likely that of all: leaving out such records is no advice then.
  [[noreturn]] void refuse_label(int64_t label) const {
    const std::string why = "its label is " + std::to_string(label);
    if (label == 0) throw BadImage(why + "; use --label-base 0");
    if (!found_.records.empty()) throw BadImage(why);
    throw MendableImage(why + "; labels are numbers from 0 or 1 to " + std::to_string(max_label));
  }

  // For a record without a label of one integer.
  int64_t label_of_text(const PictureExample& picture) const {
    constexpr const char* what_is_read =
        "; a label is read as one integer (int64) from image/class/label or label, or, if a record "
        "has neither, as a class's name from image/class/text";
    if (!picture.unread_label.empty()) throw MendableImage(picture.unread_label + what_is_read);
    if (picture.text.empty()) {
      const std::string why = std::string("it has no label") + what_is_read;
      if (found_.records.empty()) throw MendableImage(why);
      throw BadImage(why);
    }
    if (has_control(picture.text))
      throw BadImage("its class's name (image/class/text) has control characters");
    return by_text;
  }

  void read(uint64_t at, uint64_t payload, uint32_t number) try {
    record_.resize(payload + record_overhead);
    file_.read(at, std::as_writable_bytes(std::span(record_)));
    const std::optional<std::string_view> content = first_record(record_);
    if (!content) throw BadImage("its checksum is wrong");
    PictureExample picture = parse_example(*content);
    if (picture.label && (*picture.label < base_ || *picture.label > max_label))
      refuse_label(*picture.label);
    found_.records.push_back({.offset = at,
                              .size = static_cast<uint32_t>(record_.size()),
                              .number = number,
                              .label = picture.label ? *picture.label : label_of_text(picture),
                              .text = picture.text,
                              .name = name_of(picture, name_, number)});
  } catch (const BadImage& e) {
    leave_out(place_of(found_.path, number, at), &SkippedRecords::records, e);
  }

  void leave_out(const std::string& place, int64_t SkippedRecords::*what, const BadImage& bad) {
    SkippedRecords skipped{.first = place + bad.what()};
    const char* const left_out = what == &SkippedRecords::records ? "records out"
                                 : what == &SkippedRecords::files
                                     ? "files out"
                                     : "records out, with all after them in their shards";
    if (!skip_bad_)
      throw DataError(skipped.first +
                      advice_for(bad, std::string(" (--on-bad-image skip leaves such ") + left_out +
                                          "; data index has it too)"));
    skipped.*what = 1;
    found_.skipped.add(skipped);
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
  if (found.skipped.count() > 0 || !fs::exists(path, error)) return;
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

void for_each(auto& sets, const auto& look) {
  for (auto& files : sets)
    for (auto& file : files)
      for (auto& record : file.records) look(record, file.path);
}

// If the records have names of classes in place of labels: labels them in the names' order, and
// returns the names.
std::vector<std::string> label_by_text(Scanned& scanned) {
  std::map<std::string, int64_t> labels;
  for_each(scanned, [&](const Found& record, const std::string&) {
    if (record.label == by_text) labels[record.text];
  });
  std::vector<std::string> names;
  for (auto& [name, label] : labels) {
    label = static_cast<int64_t>(names.size());
    names.push_back(name);
  }
  for_each(scanned, [&](Found& record, const std::string& path) {
    if (record.label != by_text && !names.empty())
      throw DataError(place_of(path, record.number, record.offset) + "has a label, " +
                      std::to_string(record.label) +
                      ", but other records have only a class's name (image/class/text); give all "
                      "of them labels, or none");
    if (record.label == by_text) record.label = labels[record.text];
  });
  return names;
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
    named = named && !text.empty() && !has_control(text);
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

  std::vector<std::string> classes = label_by_text(scanned);
  if (!classes.empty() && options.label_base)
    throw DataError("--label-base: the records of " + folder +
                    " have names of classes and no labels; leave the option out");
  int64_t lowest = max_label;
  for_each(scanned, [&](const Found& record, const std::string&) {
    lowest = std::min(lowest, record.label);
  });
  const int64_t base = options.label_base.value_or(lowest == 0 ? 0 : 1);
  if (classes.empty()) classes = names_of_classes(scanned, base);
  std::vector<ScannedSet> result;
  for (size_t s = 0; s < sets.size(); ++s) {
    ScannedSet set{.name = sets[s].name, .index = index_of(sets[s], scanned[s], classes, base)};
    for (const ScannedFile& file : scanned[s]) set.skipped.add(file.skipped);
    if (set.index.rows.empty())
      throw DataError(folder + ": none of the records of " + set.name +
                      " can be read, the first: " + set.skipped.first);
    result.push_back(std::move(set));
  }
  return result;
}

}  // namespace bv
