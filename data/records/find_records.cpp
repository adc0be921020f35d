// The files of records in a folder, and the sets that they make.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "data/decode/image_extensions.h"
#include "data/folder_scan.h"
#include "data/records/scan_records.h"
#include "data/records/shard_names.h"
#include "data/records/tfrecord.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

// How the records of a folder are told from other files.
enum class Told { by_name, by_contents };

// Whether a file begins like a record.
bool begins_like_a_record(const fs::path& path) try {
  const RegularFile file(path);
  std::string head(record_head, '\0');
  if (file.size() < record_overhead) return false;
  file.read(0, std::as_writable_bytes(std::span(head)));
  const std::optional<uint64_t> length = payload_length(head);
  return length && *length <= file.size() - record_overhead;
} catch (const FileError&) {
  return false;
} catch (const MachineError& e) {
  if (e.code == EACCES || e.code == EPERM) return false;  // a note of somebody else's
  throw;
}

bool has_record_name(const fs::path& path) {
  const std::string name = path.filename();
  return has_record_extension(name) || shard_name(name);
}

// Whether a file of another name may be one of records: it isn't hidden, an image or TensorBoard's.
bool may_be_records(const fs::path& path) {
  const std::string name = path.filename(), extension = extension_of(path);
  return !name.starts_with('.') && name.find("tfevents") == name.npos && !is_read(extension) &&
         !is_other_image(extension);
}

bool is_record_file(const fs::path& path, Told how) {
  return how == Told::by_name ? has_record_name(path)
                              : may_be_records(path) && begins_like_a_record(path);
}

// The folder itself, and the subfolders that imagenet-tools creates. Contents count only where
// there are no class folders.
std::vector<fs::path> places_in(const std::string& folder, Told how = Told::by_name) {
  std::vector<fs::path> places = {folder};
  const FolderEntries entries = entries_of(folder);
  for (const auto* inner :
       {&entries.folders, &entries.linked_folders, &entries.devices, &entries.lost})
    for (const fs::path& path : *inner)
      if (const std::string name = path.filename(); name == "train" || is_val_name(name))
        places.push_back(path);
  if (how == Told::by_contents)
    std::erase_if(places, [](const fs::path& place) { return !folders_in(place).empty(); });
  return places;
}

// Contents count only if no file has such a name.
std::optional<Told> told_by(const std::string& folder) {
  std::vector<fs::path> others;
  for (const fs::path& place : places_in(folder)) {
    std::error_code error;
    if (!fs::is_directory(place, error)) continue;  // a link without a target
    const FolderEntries here = entries_of(place);
    for (const auto* paths : {&here.files, &here.devices, &here.lost})
      if (std::ranges::any_of(*paths, has_record_name)) return Told::by_name;
    if (here.folders.empty() && here.linked_folders.empty())
      std::ranges::copy_if(here.files, std::back_inserter(others), may_be_records);
  }
  if (std::ranges::any_of(others, begins_like_a_record)) return Told::by_contents;
  return {};
}

}  // namespace

std::vector<RecordSet> find_record_sets(const std::string& folder) {
  std::map<std::string, std::vector<std::string>> sets;
  const std::optional<Told> how = told_by(folder);
  if (!how) return {};
  for (const fs::path& place : places_in(folder, *how))
    for (const fs::path& path : files_in(place)) {
      const std::string file = path.filename();
      if (!is_record_file(path, *how)) continue;
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

bool has_record_files(const std::string& folder) { return told_by(folder).has_value(); }

void refuse_compressed_records(const std::string& folder) {
  constexpr std::pair<std::string_view, std::string_view> unpackers[] = {
      {".gz", "gunzip"}, {".bz2", "bunzip2"}, {".xz", "unxz"}, {".zst", "unzstd"}};
  for (const fs::path& place : places_in(folder, Told::by_contents))
    for (const fs::path& file : files_in(place))
      for (const auto& [extension, unpack] : unpackers)
        if (extension_of(file.stem()) == ".tar" || extension_of(file) == ".tar")
          throw DataError(folder + ": has " + file.filename().string() +
                          ", an archive; unpack it: `tar -xf " + shell_word(file) + " -C " +
                          shell_word(place) + "`");
        else if (extension_of(file) == extension)
          throw DataError(folder + ": has " + file.filename().string() +
                          ", a compressed file; its records are read once it is unpacked: `" +
                          std::string(unpack) + " " + shell_word(place) + "/*" +
                          std::string(extension) + "`");
}

std::string idx_path(const std::string& folder, const std::string& file) {
  const fs::path path(file);
  if (path.has_parent_path())
    return fs::path(folder) / "idx_files" / path.parent_path() /
           (path.filename().string() + ".idx");
  const bool extension = has_record_extension(file);
  return fs::path(folder) / ((extension ? path.stem().string() : file) + ".idx");
}

std::string way_to_rebuild(const std::string& index_path, const std::string& folder,
                           std::span<const std::string> files) {
  std::error_code error;
  bool beside = false, apart = false;  // the .idx files
  for (const std::string& file : files) {
    if (fs::exists(idx_path(folder, file), error))
      (fs::path(file).has_parent_path() ? apart : beside) = true;
  }
  const bool folders = apart || fs::is_directory(index_path, error);
  std::string indexes = shell_word(index_path);
  for (const RecordSet& set : find_record_sets(folder))  // `data index` writes those of all sets
    if (const std::string path = folder + "/" + set.name + ".index";
        path != index_path && fs::exists(path, error))
      indexes += " " + shell_word(path);
  return "`rm " + std::string(folders ? "-r " : "") + indexes +
         (beside ? " " + shell_word(folder) + "/*.idx" : "") +
         (apart ? " " + shell_word(folder + "/idx_files") : "") + " && " + own_command() +
         " data index " + shell_word(folder) + "`";
}

}  // namespace bv
