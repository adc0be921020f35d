#include "data/records/record_parts.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/machine_error.h"
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

RecordParts scan_parts(const std::string& folder, bool skip_bad) {
  const std::vector<RecordSet> sets = find_record_sets(folder);
  std::vector<std::string> names;
  for (const RecordSet& set : sets) names.push_back(set.name);
  const std::vector<size_t> order = order_parts(names, folder, "");
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<ScannedSet> scanned =
      scan_records(folder, sets, {.skip_bad = skip_bad, .threads = threads}, [](int64_t) {});
  RecordParts parts;
  for (const size_t i : order) {
    if (parts.skipped == 0) parts.first_skipped = scanned[i].first_skipped;
    parts.skipped += scanned[i].skipped;
    parts.all.push_back(std::make_shared<Records>(folder, folder, std::move(scanned[i].index)));
  }
  parts.notes.push_back("all records of " + folder +
                        " were read for their labels; ./launcher data index " + folder +
                        " stores them, so that later runs start at once");
  return parts;
}

}  // namespace

Records::Records(std::string named, const std::string& in, RecordIndex&& of)
    : path(std::move(named)), folder(in), index(std::move(of)), files(folder, index, path) {}

bool is_records(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path.ends_with(".index") && is_index(path);
  return !indexes_in(path).empty() || has_record_files(path);
}

RecordParts find_record_parts(const std::string& path, bool skip_bad) {
  if (!have_records) throw DataError(path + ": " + without_records());
  if (!fs::is_directory(path)) return {.all = {open_index(path)}, .notes = {}};
  const std::vector<std::string> names = indexes_in(path);
  if (names.empty()) return scan_parts(path, skip_bad);
  RecordParts parts;
  for (const size_t i : order_parts(names, path, ".index"))
    parts.all.push_back(open_index(path + "/" + names[i]));
  return parts;
}

}  // namespace bv
