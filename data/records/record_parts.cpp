#include "data/records/record_parts.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "data/decode/decode.h"
#include "data/records/lost_records.h"
#include "data/records/scan_records.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> indexes_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".index" && is_index(entry.path()))
      found.push_back(entry.path().filename());
  if (is_machine_error(error.value())) throw MachineError(folder, error.value());
  std::ranges::sort(found);
  return found;
}

std::shared_ptr<const Records> open_index(const std::string& path) {
  const std::string folder = fs::path(path).parent_path();
  return std::make_shared<Records>(path, folder.empty() ? "." : folder, read_index(path));
}

// Indices of the train and val sets, found by name, or of the single set. Throws DataError.
std::vector<size_t> order_parts(const std::vector<std::string>& names, const std::string& folder,
                                const std::string& extension) {
  if (names.size() == 1) return {0};
  const auto at = [&](const char* name) {
    return static_cast<size_t>(std::ranges::find(names, name + extension) - names.begin());
  };
  const size_t train = at("train"), val = std::min(at("val"), at("validation"));
  if (names.size() == 2 && train < 2 && val < 2) return {train, val};
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw DataError(folder + ": has " + list + "; a data set is one of them, or train" + extension +
                  " and val" + extension + " or validation" + extension +
                  "; name another by its path");
}

// The reason why the file in the place of a set's index isn't one; empty if there is none. Throws
// DataError if it was meant as one.
std::string stranger_in_place_of(const std::string& index_path, const RecordSet& set,
                                 const std::string& folder) try {
  std::error_code error;
  if (!fs::exists(index_path, error)) return "";
  const RegularFile file(index_path);
  FileView view(file);
  const auto start = view.at(0, stranger_bytes);
  if (start.empty())
    throw DataError(index_path + ": the file is empty; " +
                    way_to_rebuild(index_path, folder, set.files) +
                    " writes it again from the records");
  if (is_git_lfs_pointer(start)) throw DataError(index_path + ": " + std::string(git_lfs_pointer));
  return "it doesn't begin with '# barevision index'";
} catch (const FileError& e) {
  return e.what();
}

// Refuses what was meant as an index. Returns a line on how to store an index.
std::string advise_index(const std::string& folder, const std::vector<RecordSet>& sets) {
  const std::string read = "all records of " + folder + " were read for their labels";
  for (const RecordSet& set : sets) {
    const std::string path = folder + "/" + set.name + ".index";
    if (is_index(path)) continue;
    if (const std::string why = stranger_in_place_of(path, set, folder); !why.empty())
      return read + ", since " + path + " is no index (" + why + "); " +
             way_to_rebuild(path, folder, set.files) +
             " stores them, so that later runs start at once";
  }
  return read + "; ./launcher data index " + shell_word(folder) +
         " stores them, so that later runs start at once";
}

RecordParts scan_parts(const std::string& folder, const std::vector<RecordSet>& sets,
                       bool skip_bad) {
  const std::string advice = advise_index(folder, sets);
  std::vector<std::string> names;
  for (const RecordSet& set : sets) names.push_back(set.name);
  const std::vector<size_t> order = order_parts(names, folder, "");
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<ScannedSet> scanned =
      scan_records(folder, sets, {.skip_bad = skip_bad, .threads = threads}, [](int64_t) {});
  RecordParts parts;
  for (const size_t i : order) {
    parts.skipped.add(scanned[i].skipped);
    parts.all.push_back(std::make_shared<Records>(folder, folder, std::move(scanned[i].index)));
  }
  parts.notes.push_back(advice);
  return parts;
}

}  // namespace

bool is_records(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path.ends_with(".index") && is_index(path);
  return !indexes_in(path).empty() || has_record_files(path);
}

RecordParts find_record_parts(const std::string& path, bool skip_bad) {
  if (!have_records) throw DataError(path + ": " + without_records());
  if (!fs::is_directory(path)) {
    RecordParts parts{.all = {open_index(path)}, .notes = {}};
    const Records& one = *parts.all[0];
    try {
      parts.lost = lost_records(parts.all, find_record_sets(one.folder), Sets::listed);
    } catch (const std::runtime_error&) {
      // A folder that can't be listed doesn't matter: its index says what is read.
    }
    return parts;
  }
  const std::vector<std::string> names = indexes_in(path);
  const std::vector<RecordSet> sets = find_record_sets(path);
  RecordParts parts;
  if (names.empty()) {
    parts = scan_parts(path, sets, skip_bad);
  } else {
    advise_index(path, sets);
    for (const size_t i : order_parts(names, path, ".index"))
      parts.all.push_back(open_index(path + "/" + names[i]));
  }
  parts.lost = lost_records(parts.all, sets, Sets::all);
  return parts;
}

}  // namespace bv
