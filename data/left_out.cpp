#include "data/left_out.h"

#include <map>
#include <set>

#include "base/text.h"
#include "data/decode/image_extensions.h"

namespace bv {
namespace {

std::map<std::string, int64_t> by_extension(const std::vector<std::string>& paths) {
  std::map<std::string, int64_t> counts;
  for (const std::string& path : paths) ++counts[extension_of(path)];
  return counts;
}

void append(std::string& list, const std::string& item, const char* separator = ", ") {
  list += (list.empty() ? "" : separator) + item;
}

// "left out: 4 folders of systems (@eaDir), 2 files of systems (Thumbs.db); rename ..."
std::string system_line(const std::vector<std::string>& found) {
  int64_t count[2] = {};
  std::set<std::string> names[2];
  for (std::string name : found) {
    const bool folder = name.ends_with('/');
    if (folder) name.pop_back();
    ++count[!folder];
    names[!folder].insert(std::move(name));
  }
  std::string text;
  for (const bool file : {false, true}) {
    if (count[file] == 0) continue;
    const std::vector<std::string> shown(names[file].begin(), names[file].end());
    append(text, counted(count[file], file ? "file" : "folder") + " of systems (" +
                     join(shown, ", ") + ")");
  }
  return "left out: " + text +
         (count[0] > 0 ? "; if one of them is a class, give it another name" : "");
}

}  // namespace

std::string unread_images(const LeftOut& left_out) {
  std::string text;
  for (const auto& [extension, count] : by_extension(left_out.unread))
    append(text, std::to_string(count) + " " + extension);
  return text;
}

// With -L, find looks into class folders that are links. It starts the converter in any number of
// folders, and leaves the originals alone.
std::string conversion(const LeftOut& left_out, std::span<const std::string> folders) {
  std::string names, places;
  bool by_library = false;
  const auto counts = by_extension(left_out.unread);
  for (const auto& [extension, count] : counts) {
    append(names, "-iname '*" + extension + "'", " -o ");
    by_library |= has_library(extension);
  }
  for (const std::string& folder : folders) places += " " + shell_word(folder);
  if (counts.size() > 1) names = "\\( " + names + " \\)";
  return "find -L" + places + " " + names + " -exec mogrify -format jpg {} +" +
         (by_library ? ", or make deps && make" : "");
}

std::vector<std::string> left_out_lines(const LeftOut& left_out) {
  std::vector<std::string> lines;
  if (!left_out.systems.empty()) lines.push_back(system_line(left_out.systems));
  if (!left_out.links.empty())
    lines.push_back("left out: " + counted(int64_t(left_out.links.size()), "link") +
                    " to folders, the first " + left_out.links[0] +
                    "; to use their images, put the folders in the place of the links");
  return lines;
}

std::vector<std::string> all_notes(const DataSets& sets) {
  std::vector<std::string> notes = sets.notes;
  if (!sets.left_out.empty())
    notes.push_back("warning: images are left out: " + sets.left_out + "; use " +
                    sets.left_out_advice);
  return notes;
}

}  // namespace bv
