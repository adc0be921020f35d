// Names of TensorBoard's files: events.out.tfevents.<seconds>.<host>.<pid>.<number>
#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

namespace bv {

inline constexpr std::string_view event_file_prefix = "events.out.tfevents.";

inline bool is_event_file(std::string_view name) { return name.starts_with(event_file_prefix); }

inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_event_file(entry.path().filename().string())) files.push_back(entry.path());
  return files;
}

}  // namespace bv
