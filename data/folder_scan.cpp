#include "data/folder_scan.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>
#include <string_view>

#include "base/files/file.h"
#include "base/machine_error.h"
#include "data/decode/image_extensions.h"
#include "data/sources.h"

namespace bv {
namespace {

namespace fs = std::filesystem;
using Words = std::span<const std::string_view>;

bool is_one_of(std::string_view word, Words words) { return std::ranges::count(words, word) > 0; }

bool hidden(const std::string& name) { return name.starts_with('.'); }

// In lower case: of Synology, QNAP, NetApp, macOS and its zip files, Windows, Linux's ext4.
constexpr std::string_view system_names[] = {
    "@eadir",     "#recycle",     "#snapshot",   "@recycle",
    "~snapshot",  "__macosx",     "icon\r",      "network trash folder",
    "thumbs.db",  "ehthumbs.db",  "desktop.ini", "temporary items",
    "lost+found", "$recycle.bin", "found.000",   "system volume information"};

bool is_missing(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
         error == std::errc::too_many_symbolic_link_levels;
}

// Whether a name without an image's extension may be that of a folder: "dog", "St. Bernard",
// "dog.v2"; not "labels.csv".
bool may_be_folder(const fs::path& path) {
  constexpr size_t longest = 6;
  const std::string extension = path.extension().string();
  const bool of_file =
      extension.size() > 1 && extension.size() <= longest &&
      std::ranges::all_of(extension.substr(1), [](unsigned char c) { return std::isalpha(c); });
  return !of_file && !is_read(extension_of(path)) && !is_other_image(extension_of(path));
}

std::string name_of_device(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  const std::string what = type == fs::file_type::regular  ? "a file"
                           : type == fs::file_type::fifo   ? "a named pipe"
                           : type == fs::file_type::socket ? "a socket"
                                                           : "a device";
  return fs::is_symlink(path, error) ? "a link to " + what : what;
}

[[noreturn]] void refuse_in_place_of_folder(const fs::path& path) {
  const std::string link = link_without_target(path);
  throw DataError(path.string() + ": " +
                  (link.empty() ? name_of_device(path) + ", not a folder" : link) +
                  "; a class or a part of the data may be missing: put the folder back, or delete "
                  "the " +
                  (link.empty() ? "file" : "link"));
}

// Files whose extensions aren't read; `files`: all of their folder.
void sort_out(const std::vector<fs::path>& not_read, const std::vector<fs::path>& files,
              const fs::path& root, LeftOut& left_out) {
  const auto is_other = [](const fs::path& path) { return is_other_image(extension_of(path)); };
  std::set<fs::path> jpegs;  // without extensions
  if (std::ranges::any_of(not_read, is_other))
    for (const fs::path& path : files)
      if (extension_of(path) == ".jpg") jpegs.insert(path.stem());
  for (const fs::path& path : not_read) {
    const bool unread = is_other(path) && !jpegs.contains(path.stem());
    (unread ? left_out.unread : left_out.others).push_back(path.lexically_relative(root));
  }
}

void scan_folder(const fs::path& root, const fs::path& folder, ClassFolder& found) {
  FolderEntries entries = entries_of(folder);
  for (const fs::path& inner : entries.folders) scan_folder(root, inner, found);
  std::vector<fs::path> links = std::move(entries.linked_folders), not_read;
  for (const auto* paths : {&entries.files, &entries.devices, &entries.lost})
    for (const fs::path& path : *paths) {
      const bool lost_folder = paths == &entries.lost && may_be_folder(path);
      if (is_read(extension_of(path)))
        found.files.push_back(path.lexically_relative(root));
      else
        (lost_folder ? links : not_read).push_back(path);
    }
  sort_out(not_read, entries.files, root, found.left_out);
  for (const fs::path& link : links) found.left_out.links.push_back(link.lexically_relative(root));
  found.left_out.add({.systems = std::move(entries.systems)});
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

std::vector<std::string> names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename().string());
  return names;
}

}  // namespace

void LeftOut::add(const LeftOut& more) {
  const auto append = [](std::vector<std::string>& all, const std::vector<std::string>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
  append(unread, more.unread);
  append(others, more.others);
  append(links, more.links);
  append(systems, more.systems);
}

FolderEntries entries_of(const fs::path& folder) {
  FolderEntries found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code lost, ignored;
    if (hidden(name)) continue;
    if (is_one_of(lower_case(name), system_names))
      found.systems.push_back(name + (at->is_directory(ignored) ? "/" : ""));
    else if (at->is_directory(lost))
      (at->is_symlink(ignored) ? found.linked_folders : found.folders).push_back(at->path());
    else if (!lost)
      (at->is_regular_file(ignored) ? found.files : found.devices).push_back(at->path());
    else if (is_missing(lost) && at->is_symlink(ignored))
      found.lost.push_back(at->path());
    else if (!is_missing(lost))  // otherwise it was deleted just now
      throw MachineError(at->path(), lost.value());
  }
  if (error == std::errc::no_such_file_or_directory) {
    const std::string link = link_without_target(folder);
    throw DataError(folder.string() + ": " + (link.empty() ? "no such folder" : link));
  }
  if (error == std::errc::not_a_directory)
    throw DataError(folder.string() + ": " + name_of_device(folder) + ", not a folder");
  if (error) throw MachineError(folder, error.value());
  for (auto* paths :
       {&found.folders, &found.linked_folders, &found.files, &found.devices, &found.lost})
    std::ranges::sort(*paths);
  std::ranges::sort(found.systems);
  return found;
}

ClassFolder scan_class(const fs::path& root, const fs::path& folder) {
  ClassFolder found{.name = folder.filename().string(), .files = {}, .left_out = {}};
  scan_folder(root, folder, found);
  for (auto* names : {&found.files, &found.left_out.unread, &found.left_out.others})
    std::ranges::sort(*names);
  return found;
}

std::vector<fs::path> folders_in(const fs::path& path) {
  FolderEntries entries = entries_of(path);
  for (const auto* paths : {&entries.lost, &entries.devices})
    for (const fs::path& lost : *paths)
      if (may_be_folder(lost)) refuse_in_place_of_folder(lost);
  std::vector<fs::path> folders = std::move(entries.folders);
  folders.insert(folders.end(), entries.linked_folders.begin(), entries.linked_folders.end());
  std::ranges::sort(folders);
  return folders;
}

std::vector<fs::path> files_in(const fs::path& path) {
  FolderEntries entries = entries_of(path);
  std::vector<fs::path> files = std::move(entries.files);
  for (const auto* more : {&entries.devices, &entries.lost})
    files.insert(files.end(), more->begin(), more->end());
  std::ranges::sort(files);
  return files;
}

PartFolders find_parts(const fs::path& path) {
  const auto folders = folders_in(path);
  return {.train = part_folder(folders, train_names), .val = part_folder(folders, val_names)};
}

bool is_val_name(const std::string& folder) { return is_one_of(lower_case(folder), val_names); }

std::vector<std::string> unused_parts(const fs::path& path, const fs::path& val) {
  std::vector<std::string> lines;
  const auto folders = folders_in(path);
  const fs::path train = part_folder(folders, train_names);
  if (train.empty()) return {};
  const auto is_class = [classes = names_of(folders_in(train))](const std::string& name) {
    return std::ranges::binary_search(classes, name);
  };
  for (const fs::path& folder : folders) {
    std::error_code error;
    const std::string name = folder.filename().string();
    if (folder == train || fs::equivalent(folder, val, error)) continue;
    const auto inner = names_of(folders_in(folder));
    if (is_val_name(name)) {
      if (inner.empty())
        lines.push_back("left out: " + name + "/, which has no class folders in it");
    } else if (std::ranges::any_of(inner, is_class)) {
      lines.push_back("left out: " + name + "/, which has folders of the same classes as " +
                      train.filename().string() + "/; --val validates on such a folder");
    }
  }
  for (const fs::path& file : files_in(path))
    if (is_val_name(file.filename().string()))
      lines.push_back("left out: " + file.filename().string() +
                      ", a file, not a folder of classes");
  return lines;
}

PartFolders require_train(PartFolders parts, const fs::path& path) {
  if (parts.train.empty() && !parts.val.empty())
    throw DataError(path.string() + ": has " + parts.val.filename().string() +
                    "/ but no train/ with class folders in it");
  return parts;
}

}  // namespace bv
