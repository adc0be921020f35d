// Scans a folder of class folders: sorted by name, without hidden entries.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

struct ClassFolder {
  std::string name;
  std::vector<std::string> files;     // with an image's extension, relative to the root
  std::vector<std::string> left_out;  // other files
};
// Files at any depth; links to files are followed, links to folders are not.
ClassFolder scan_class(const std::filesystem::path& root, const std::filesystem::path& folder);

std::vector<std::filesystem::path> folders_in(const std::filesystem::path&);
// The regular files.
std::vector<std::filesystem::path> files_in(const std::filesystem::path&);

// A folder's train/ and val/, in any case or under their other names, with class folders in them;
// a missing part is empty.
struct PartFolders {
  std::filesystem::path train, val;
};
PartFolders find_parts(const std::filesystem::path&);
bool is_val_name(const std::string& folder);
// Returns the parts; refuses a folder that has val/ but no train/.
PartFolders require_train(PartFolders, const std::filesystem::path&);

std::string extension_of(const std::filesystem::path&);  // ".jpg", in lower case
bool is_read(std::string_view extension);
// Whether the extension is that of an image format that this build doesn't read.
bool is_other_image(std::string_view extension);
// Whether a build with the format's library reads files with the extension (WebP, TIFF).
bool has_library(std::string_view extension);

}  // namespace bv
