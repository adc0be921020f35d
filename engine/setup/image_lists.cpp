#include "engine/setup/image_lists.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "base/files/file_io.h"
#include "base/text.h"

namespace bv {
namespace {

constexpr int64_t max_listed = 2'000'000;
constexpr uint64_t max_bytes = 1 << 30;

std::string line_of(const std::string& path) { return printable(path, path.npos) + "\n"; }

std::string lines_of(const Dataset& data, const std::vector<int64_t>& bad) {
  std::string text;
  for (int64_t i = 0; i < data.size(); ++i)
    if (!std::ranges::binary_search(bad, i)) text += line_of(data.name(i));
  return text;
}

// Nothing instead of an empty text.
void write_list(const std::string& path, const std::string& text) {
  std::error_code ignored;
  if (text.empty())
    std::filesystem::remove(path, ignored);
  else
    write_text_file(path, text);
}

std::vector<std::string> read_lines(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  std::vector<std::string> lines = split(read_text_file(path, max_bytes), '\n');
  std::erase(lines, "");
  return lines;
}

// A line that can be read again, whatever the bytes of the name.
std::string escaped(const std::string& text) {
  return join(split(join(split(text, '\\'), "\\\\"), '\n'), "\\n");
}

std::string unescaped(const std::string& line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i)
    if (line[i] == '\\' && i + 1 < line.size())
      text += line[++i] == 'n' ? '\n' : line[i];
    else
      text += line[i];
  return text;
}

std::string end_of_path(std::string_view path) {
  const size_t file = path.rfind('/'), folder = file == 0 ? path.npos : path.rfind('/', file - 1);
  return std::string(file == path.npos || folder == path.npos ? path : path.substr(folder + 1));
}

ListChange change_of(const std::vector<std::string>& lines, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> listed;  // by the end of the path
  for (const std::string& line : lines) listed[end_of_path(line)].push_back(line);
  ListChange change;
  for (const std::string& name : names) {
    const auto found = listed.find(end_of_path(name));
    if (found == listed.end()) {
      if (change.others++ == 0) change.other = name;
    } else if (found->second.pop_back(); found->second.empty()) {
      listed.erase(found);
    }
  }
  for (const auto& [end, paths] : listed) {
    if (change.missing == 0) change.gone = paths[0];
    change.missing += static_cast<int64_t>(paths.size());
  }
  return change;
}

}  // namespace

void write_image_lists(const std::string& folder, const std::string& data, const DataSets& sets,
                       const BadImages& bad) {
  if (sets.kind != DataKind::photos) return;
  const bool images_are_files = sets.train->files() == sets.train->size();
  if (images_are_files && sets.train->size() <= max_listed)
    write_list(folder + "/" + train_list_name, lines_of(*sets.train, bad.train));
  if (sets.val) write_list(folder + "/" + val_list_name, lines_of(*sets.val, bad.val));
  std::string skipped;
  const std::string root = absolute_path(data) + "/";
  const auto add = [&](const Dataset& part, int64_t i) {
    const std::string path = absolute_path(part.name(i));
    skipped += escaped(path.starts_with(root) ? path.substr(root.size()) : path) + "\n";
  };
  for (const int64_t i : bad.train) add(*sets.train, i);
  for (const int64_t i : bad.val) add(*sets.val, i);
  write_list(folder + "/" + skipped_list_name, skipped);
}

std::vector<std::string> skipped_images(const std::string& folder, const std::string& data) {
  std::vector<std::string> paths = read_lines(folder + "/" + skipped_list_name);
  for (std::string& path : paths) {
    path = unescaped(path);
    if (!path.starts_with('/')) path = absolute_path(data) + "/" + path;
  }
  return paths;
}

std::optional<ListChange> change_since(const std::string& list, const Dataset& data,
                                       const std::vector<int64_t>& bad) {
  const std::vector<std::string> lines = read_lines(list);
  if (lines.empty()) return {};
  std::vector<std::string> names;
  for (int64_t i = 0; i < data.size(); ++i)
    if (!std::ranges::binary_search(bad, i))
      names.push_back(printable(data.name(i), std::string::npos));
  return change_of(lines, names);
}

// Both parts together: a file that is gone may have moved others from one to the other.
std::string first_change(const std::string& folder, const std::string& data, const DataSets& sets) {
  const std::vector<std::string> train = read_lines(folder + "/" + train_list_name);
  std::vector<std::string> lines = read_lines(folder + "/" + val_list_name), names;
  lines.insert(lines.end(), train.begin(), train.end());
  const std::vector<std::string> list = skipped_images(folder, data);
  const std::set<std::string> skipped(list.begin(), list.end());
  for (const Dataset* part : {sets.train.get(), sets.val.get()})
    for (int64_t i = 0; part && i < part->size(); ++i)
      if (skipped.empty() || !skipped.contains(absolute_path(part->name(i))))
        names.push_back(printable(part->name(i), std::string::npos));
  const ListChange change = change_of(lines, names);
  if (change.missing > 0) return " (" + change.gone + " is gone)";
  return change.others > 0 && !train.empty() ? " (" + change.other + " is new)" : "";
}

}  // namespace bv
