// A temporary folder next to its final place, removed by the destructor unless it was renamed. One
// that a killed process left is removed when the same name is written again.
#pragma once
#include <filesystem>
#include <optional>

#include "engine/files/run_lock.h"

namespace bv {

class PartialFolder {
 public:
  // Makes NAME.partial-PID in an existing folder, after removing those that killed processes left
  // for NAME. Throws std::filesystem::filesystem_error.
  explicit PartialFolder(const std::filesystem::path& name);
  ~PartialFolder();  // removes it, unless it was kept
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Removes the lock file, so that the complete folder has only the files written into it.
  void unlock() { lock_.reset(); }
  void keep() { path_.clear(); }  // after it was renamed

 private:
  std::filesystem::path path_;
  std::optional<RunLock> lock_;
};

}  // namespace bv
