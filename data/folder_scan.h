// Scans a folder of class folders: sorted by name, without hidden entries, and without the folders
// and files that operating systems and network disks put everywhere.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace bv {

// Entries of a scan that aren't images of the data. Paths are relative to the root.
struct LeftOut {
  std::vector<std::string> unread;   // images of formats that this build doesn't read
  std::vector<std::string> others;   // other files
  std::vector<std::string> links;    // to folders, below a class
  std::vector<std::string> systems;  // names: "Thumbs.db"; of folders "@eaDir/"
  void add(const LeftOut&);
};

// One folder's entries. Throws DataError if the folder or an entry can't be looked at.
struct FolderEntries {
  std::vector<std::filesystem::path> folders, linked_folders;
  std::vector<std::filesystem::path> files;
  std::vector<std::filesystem::path> devices;  // pipes, sockets and devices, openers refuse them
  std::vector<std::filesystem::path> lost;     // links without a target
  std::vector<std::string> systems;
};
FolderEntries entries_of(const std::filesystem::path& folder);

// An unread image beside a .jpg of the same name, into which it was converted, is one of
// `left_out.others`.
struct ClassFolder {
  std::string name;
  std::vector<std::string> files;  // with an image's extension, relative to the root
  LeftOut left_out;
};
// Files at any depth, also links without a target; links to folders are not followed.
ClassFolder scan_class(const std::filesystem::path& root, const std::filesystem::path& folder);

// Folders and links to folders. Throws DataError if a pipe or a link without a target may stand in
// the place of a folder.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path&);
// All else, also pipes and links without a target.
std::vector<std::filesystem::path> files_in(const std::filesystem::path&);

// A folder's train/ and val/, in any case or under their other names, with class folders in them;
// a missing part is empty.
struct PartFolders {
  std::filesystem::path train, val;
};
PartFolders find_parts(const std::filesystem::path&);
bool is_val_name(const std::string& folder);
// A line for each folder next to train/ that isn't used: one named like val/ without class folders,
// one of another name with folders of train/'s classes, unless it is `val`; for a file named like
// val/, too.
std::vector<std::string> unused_parts(const std::filesystem::path&,
                                      const std::filesystem::path& val = {});
// Returns the parts; refuses a folder that has val/ but no train/.
PartFolders require_train(PartFolders, const std::filesystem::path&);

}  // namespace bv
