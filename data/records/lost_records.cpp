#include "data/records/lost_records.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "data/records/shard_names.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

// "2 files of records aren't in x.index and are not read, the first x-00002-of-00003; move ..."
std::string unlisted_line(const Records& records, const std::vector<std::string>& files,
                          bool same_set) {
  const bool one = files.size() == 1;
  const std::string them = one ? "it" : "them";
  const std::string line =
      (one ? "a file of records isn't in " + records.path + " and is not read, "
           : counted(static_cast<int64_t>(files.size()), "file") + " of records aren't in " +
                 records.path + " and are not read, the first ") +
      records.folder + "/" + files[0] + "; move " + them;
  if (!same_set || !records.index.boxes.empty() || records.path == records.folder)
    return line + " into another folder";
  return line + " elsewhere, or list " + them + ": " +
         way_to_rebuild(records.path, records.folder, records.index.files);
}

}  // namespace

std::string missing_records(std::span<const RecordIndex* const> indexes,
                            std::vector<std::string> others) {
  for (const RecordIndex* index : indexes) {
    const std::vector<uint64_t> ends = index->ends();
    for (size_t i = 0; i < ends.size(); ++i)
      if (ends[i] > 0) others.push_back(index->files[i]);
  }
  const std::string missing = missing_shards(others);
  return missing.empty() ? "" : "records are empty or missing: " + missing;
}

std::vector<std::string> lost_records(std::span<const std::shared_ptr<const Records>> parts,
                                      std::span<const RecordSet> found, Sets sets) {
  std::set<std::string> listed;
  std::vector<const RecordIndex*> indexes;
  for (const auto& part : parts) {
    listed.insert(part->index.files.begin(), part->index.files.end());
    indexes.push_back(&part->index);
  }
  const Records& first = *parts[0];
  std::vector<std::string> unlisted;
  bool same_set = true;
  for (const RecordSet& set : found) {
    const auto is_listed = [&](const std::string& file) { return listed.contains(file); };
    const bool known = std::ranges::any_of(set.files, is_listed);
    if (sets == Sets::listed && !known) continue;
    for (const std::string& file : set.files) {
      std::error_code error;
      if (is_listed(file) || fs::is_empty(fs::path(first.folder) / file, error)) continue;
      unlisted.push_back(file);
      same_set = same_set && known;
    }
  }
  std::vector<std::string> lines;
  if (!unlisted.empty()) lines.push_back(unlisted_line(first, unlisted, same_set));
  if (std::string missing = missing_records(indexes, unlisted); !missing.empty())
    lines.push_back(std::move(missing));
  return lines;
}

}  // namespace bv
