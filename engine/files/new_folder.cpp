#include "engine/files/new_folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>

#include "base/error.h"
#include "base/files/file_io.h"

namespace bv {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& option, const std::string& path)
    : named_(option + " " + path), path_(fs::path(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // the path ends in a slash
  std::error_code error;
  if (fs::exists(fs::symlink_status(path_, error)))
    throw UserError(named_ + " exists; name a new folder");
  std::vector<fs::path> missing;  // innermost first
  for (fs::path at = path_.parent_path(); !at.empty() && !fs::exists(at, error);
       at = at.parent_path())
    missing.push_back(at);
  try {
    for (; !missing.empty(); missing.pop_back())
      if (fs::create_directory(missing.back())) made_.push_back(missing.back());
    partial_.emplace(path_);
  } catch (const fs::filesystem_error& e) {
    remove();
    throw UserError(named_ + ": can't make this folder: " + e.code().message());
  }
}

NewFolder::~NewFolder() { remove(); }

void NewFolder::remove() {
  std::error_code ignored;
  partial_.reset();
  for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), ignored);  // if empty
}

void NewFolder::finish() {
  partial_->unlock();
  const char* const from = partial_->path().c_str();
  if (renameat2(AT_FDCWD, from, AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    // Some file systems lack RENAME_NOREPLACE; there, an empty folder made just now is replaced.
    if (errno == EEXIST) throw UserError(named_ + " now exists; name a new folder");
    if (errno != EINVAL || rename(from, path_.c_str()) != 0)
      throw WriteError("write", path_, errno);
  }
  partial_->keep();
  made_.clear();
}

}  // namespace bv
