// Opens every file that a user names or a folder contains. Only regular files are opened, since
// reading a pipe or a device may block forever; a file's size is known before memory is allocated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace bv {

// Why a file can't be opened or read; what() doesn't include the path.
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "a link without a target (-> TARGET)"; empty if the path isn't a link that leads nowhere.
std::string link_without_target(const std::string& path);

// open(2) of a regular file, which the caller closes. Throws FileError.
int open_regular(const std::string& path, int flags);

// A regular file of at most `limit` bytes, open for reading. Throws FileError, or MachineError
// (base/machine_error.h) for a reason that says nothing about the file.
class RegularFile {
 public:
  explicit RegularFile(const std::string& path, uint64_t limit = UINT64_MAX);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  uint64_t size() const { return size_; }
  void read(uint64_t offset, std::span<std::byte> out) const;  // all of out, or throws
  void will_need(uint64_t offset, uint64_t bytes) const;       // hints the system to read ahead

 private:
  int fd_;
  uint64_t size_ = 0;
};

// A whole file of at most `limit` bytes. Throws FileError, MachineError.
std::vector<uint8_t> read_file(const std::string& path, uint64_t limit);

}  // namespace bv
