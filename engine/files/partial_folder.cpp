#include "engine/files/partial_folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace bv {

namespace fs = std::filesystem;

namespace {

// A folder is left over only if its process is dead and the lock is free: a live process on another
// machine holds the lock, and one on this machine may be about to take it.
bool is_left_over(const fs::path& folder, int64_t pid) try {
  if (pid != getpid() && (kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH)) return false;
  return RunLock(folder).warning().empty();
} catch (const UserError&) {  // locked, or not accessible
  return false;
}

void remove_left_overs(const fs::path& prefix) {
  std::error_code ignored;
  const fs::path parent = prefix.parent_path();
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored)) {
    const std::string name = entry.path().filename(), start = prefix.filename();
    if (!name.starts_with(start) || !fs::is_directory(entry.symlink_status(ignored))) continue;
    const auto pid = parse_integer(name.substr(start.size()));
    if (pid && *pid > 0 && *pid <= INT32_MAX && is_left_over(entry.path(), *pid))
      fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& name) {
  fs::path prefix = name;
  prefix += ".partial-";
  remove_left_overs(prefix);
  path_ = prefix;
  path_ += std::to_string(getpid());
  if (!fs::create_directory(path_))
    throw fs::filesystem_error("", path_, std::make_error_code(std::errc::file_exists));
  try {
    lock_.emplace(path_);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  lock_.reset();
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace bv
