#include "engine/files/new_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/file_io.h"

namespace bv {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& option, const std::string& path)
    : named_(option + " " + path), path_(fs::path(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // after a last slash
  std::error_code error;
  if (fs::exists(fs::symlink_status(path_, error)))
    throw UserError(named_ + " exists; name a new folder");
  partial_ = path_;
  partial_ += ".partial-" + std::to_string(getpid());
  std::vector<fs::path> missing = {partial_};  // innermost first
  for (fs::path at = path_.parent_path(); !at.empty() && !fs::exists(at, error);
       at = at.parent_path())
    missing.push_back(at);
  for (; !missing.empty(); missing.pop_back()) {
    if (fs::create_directory(missing.back(), error) && missing.size() > 1)
      made_.push_back(missing.back());
    if (!error) continue;
    const std::string why = error.message();
    for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), error);
    throw UserError(named_ + ": can't make this folder: " + why);
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (partial_.empty()) return;
  fs::remove_all(partial_, ignored);
  for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), ignored);  // if empty
}

void NewFolder::finish() {
  if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    // Some file systems can't refuse; there, only a folder that appeared just now is replaced.
    if (errno == EEXIST) throw UserError(named_ + " exists by now; name a new folder");
    if (errno != EINVAL || rename(partial_.c_str(), path_.c_str()) != 0)
      throw WriteError("write", path_, errno);
  }
  partial_.clear();
}

}  // namespace bv
