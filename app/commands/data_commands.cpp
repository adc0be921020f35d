#include "app/commands/data_commands.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/files/file.h"
#include "base/machine_error.h"
#include "base/text.h"
#include "comm/processes/affinity.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

int64_t images_of(const ClassCount& c) { return c.train + c.val; }

std::string right(int64_t number, size_t width) {
  const std::string text = std::to_string(number);
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string require_folder(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (!there_is(path)) {
    const std::string link = link_without_target(path);
    throw UserError(path + ": " + (link.empty() ? "no such file or folder" : link));
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) throw UserError(path + ": " + refusal_of_file(path));
  return path;
}

std::string require_data(std::string path) {
  std::error_code error;
  const bool index = path.ends_with(".index") && fs::is_regular_file(path, error);
  return index ? path : require_folder(std::move(path));
}

int decoding_threads(int workers) { return workers > 0 ? workers : usable_cores(); }

std::string class_table(std::vector<ClassCount> classes, bool has_val) {
  constexpr size_t most = 20, each = 5;
  if (classes.empty()) return "";
  const bool some = classes.size() > most;
  if (some) std::ranges::stable_sort(classes, {}, images_of);
  size_t width = 5;
  for (const ClassCount& c : classes) width = std::max(width, printable(c.name).size());
  const auto row = [&](const std::string& name, const std::string& numbers) {
    return name + std::string(width - name.size(), ' ') + numbers + "\n";
  };
  std::string text = row("class", has_val ? "   train     val" : "  images");
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto& [name, train, val] = classes[i];
    if (some && i == each) {
      text += "... " + std::to_string(classes.size() - 2 * each) + " more classes ...\n";
      i = classes.size() - each - 1;
      continue;
    }
    text += row(printable(name), right(train, 8) + (has_val ? right(val, 8) : ""));
  }
  return text;
}

}  // namespace bv
