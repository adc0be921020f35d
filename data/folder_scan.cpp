#include "data/folder_scan.h"

#include <algorithm>
#include <span>

#include "data/decode/decode.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;
using Words = std::span<const std::string_view>;

constexpr std::string_view extensions[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png",
                                           ".bmp", ".gif",  ".ppm", ".pgm",  ".pnm"};
constexpr std::string_view webp_extensions[] = {".webp"};
constexpr std::string_view tiff_extensions[] = {".tif", ".tiff"};
constexpr std::string_view other_extensions[] = {
    ".webp", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".svg", ".dng", ".cr2", ".nef"};

bool is_one_of(std::string_view word, Words words) { return std::ranges::count(words, word) > 0; }

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!hidden(at->path())) entries.push_back(*at);
  if (error == std::errc::no_such_file_or_directory)
    throw DataError(folder.string() + ": no such folder");
  if (error) throw DataError(folder.string() + ": can't be read: " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void scan_folder(const fs::path& root, const fs::path& folder, ClassFolder& found) {
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code error;  // a dangling link is not an image
    if (entry.is_directory(error) && !entry.is_symlink(error))
      scan_folder(root, entry.path(), found);
    else if (entry.is_regular_file(error))
      (is_read(extension_of(entry.path())) ? found.files : found.left_out)
          .push_back(entry.path().lexically_relative(root).string());
  }
}

bool has_folders(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error) && !folders_in(path).empty();
}

constexpr std::string_view train_names[] = {"train", "training"};
constexpr std::string_view val_names[] = {"val", "valid", "validation", "test", "testing"};

// The folder with the first of these names, in any case, that has subfolders.
fs::path part_folder(const std::vector<fs::path>& folders, Words names) {
  for (const std::string_view name : names)
    for (const fs::path& folder : folders)
      if (lower_case(folder.filename().string()) == name && has_folders(folder)) return folder;
  return {};
}

}  // namespace

ClassFolder scan_class(const fs::path& root, const fs::path& folder) {
  ClassFolder found{.name = folder.filename().string(), .files = {}, .left_out = {}};
  scan_folder(root, folder, found);
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.left_out.begin(), found.left_out.end());
  return found;
}

std::vector<fs::path> folders_in(const fs::path& path) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(path))
    if (entry.is_directory(error)) folders.push_back(entry.path());
  return folders;
}

std::vector<fs::path> files_in(const fs::path& path) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : entries_of(path))
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  return files;
}

PartFolders find_parts(const fs::path& path) {
  const auto folders = folders_in(path);
  return {.train = part_folder(folders, train_names), .val = part_folder(folders, val_names)};
}

bool is_val_name(const std::string& folder) { return is_one_of(lower_case(folder), val_names); }

PartFolders require_train(PartFolders parts, const fs::path& path) {
  if (parts.train.empty() && !parts.val.empty())
    throw DataError(path.string() + ": has " + parts.val.filename().string() +
                    "/ but no train/ with class folders in it");
  return parts;
}

std::string extension_of(const fs::path& path) { return lower_case(path.extension().string()); }

bool is_read(std::string_view extension) {
  return is_one_of(extension, extensions) || (have_webp && is_one_of(extension, webp_extensions)) ||
         (have_tiff && is_one_of(extension, tiff_extensions));
}

bool is_other_image(std::string_view extension) {
  return is_one_of(extension, other_extensions) && !is_read(extension);
}

bool has_library(std::string_view extension) {
  return is_one_of(extension, webp_extensions) || is_one_of(extension, tiff_extensions);
}

}  // namespace bv
