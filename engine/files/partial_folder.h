// A folder that is being filled, beside what it will become, and goes with the process that fills
// it.
#pragma once
#include <filesystem>
#include <optional>

#include "engine/files/run_lock.h"

namespace bv {

class PartialFolder {
 public:
  // Makes NAME.partial-PID in an existing folder. Those of NAME that a killed process has left are
  // removed first. Throws std::filesystem::filesystem_error.
  explicit PartialFolder(const std::filesystem::path& name);
  ~PartialFolder();  // removes it, unless it was kept
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // It is whole, and nothing but what was written into it.
  void unlock() { lock_.reset(); }
  void keep() { path_.clear(); }  // it has another name by now

 private:
  std::filesystem::path path_;
  std::optional<RunLock> lock_;
};

}  // namespace bv
