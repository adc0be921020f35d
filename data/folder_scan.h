// What lies in a folder of class folders, as it is found: sorted by name, without what is hidden.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace bv {

struct ClassFolder {
  std::string name;
  std::vector<std::string> files;     // that images' extensions tell, relative to the root
  std::vector<std::string> left_out;  // other files
};
// Files at any depth; links to files are followed, links to folders are not.
ClassFolder scan_class(const std::filesystem::path& root, const std::filesystem::path& folder);

std::vector<std::filesystem::path> folders_in(const std::filesystem::path&);
// The regular files.
std::vector<std::filesystem::path> files_in(const std::filesystem::path&);

// Of a folder, train/ and val/ with class folders in them, in any case and by their other names;
// empty where there is none.
struct PartFolders {
  std::filesystem::path train, val;
};
PartFolders find_parts(const std::filesystem::path&);
bool is_val_name(const std::string& folder);
// The same, refusing a folder of val/ alone.
PartFolders require_train(PartFolders, const std::filesystem::path&);

std::string extension_of(const std::filesystem::path&);  // ".jpg", in lower case
bool is_read(std::string_view extension);
// Images too, which this build doesn't read or none does.
bool is_other_image(std::string_view extension);
// Of these, those that a build with its library reads.
bool has_library(std::string_view extension);

}  // namespace bv
