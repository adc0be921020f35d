// A temporary folder next to its final place. It is removed with the process that fills it, unless
// that process renames it.
#pragma once
#include <filesystem>
#include <optional>

#include "engine/files/run_lock.h"

namespace bv {

class PartialFolder {
 public:
  // Makes NAME.partial-PID in an existing folder, after removing any that killed processes left for
  // NAME. Throws std::filesystem::filesystem_error.
  explicit PartialFolder(const std::filesystem::path& name);
  ~PartialFolder();  // removes it, unless it was kept
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Removes the lock's file: the folder is complete and holds only what was written into it.
  void unlock() { lock_.reset(); }
  void keep() { path_.clear(); }  // after it was renamed

 private:
  std::filesystem::path path_;
  std::optional<RunLock> lock_;
};

}  // namespace bv
