// Reads and writes whole files, for tests.
#pragma once
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace bv::test {

// Empty if the file is missing.
inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();  // in blocks: byte by byte, a checkpoint takes minutes under a sanitizer
  return std::move(all).str();
}

// Creates the folders above the file, too.
inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// `text` with the first occurrence of `from`, which must exist, replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);  // throws std::out_of_range
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

}  // namespace bv::test
