// A folder of files that appears complete or not at all.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/partial_folder.h"

namespace bv {

// Written next to `path` under another name; finish() renames it. Without finish(), it is removed.
class NewFolder {
 public:
  // `option` names it in messages: "--out". Throws UserError if the path exists or no folder can be
  // made there.
  NewFolder(const std::string& option, const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  const std::filesystem::path& place() const { return partial_->path(); }  // where to write
  void finish();
  void remove();  // everything it created

 private:
  std::string named_;  // "--out DIR", in messages
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // parent folders it created, outermost first
  std::optional<PartialFolder> partial_;
};

}  // namespace bv
