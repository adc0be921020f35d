// File input and output for the engine, with every system call checked: a reader whose errors are
// UserErrors, and writers that leave a complete, synced file or none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files/file.h"

namespace bv {

// Why a file could not be written; `code` is the errno.
struct WriteError : RunError {
  WriteError(const std::string& what, const std::string& path, int error_code);
  bool disk_full() const;
  int code;
};

// Size and CRC-32C of a file's bytes.
struct FileDigest {
  uint64_t bytes = 0;
  uint32_t crc = 0;
  bool operator==(const FileDigest&) const = default;
};

// A regular file open for reading. Throws UserError.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  uint64_t size() const { return file_.size(); }
  void read(uint64_t offset, std::span<std::byte> out) const;  // all of out, or throws
  FileDigest digest() const;

 private:
  std::string path_;
  RegularFile file_;
};

// Reads a text file of at most `limit` bytes. Throws UserError naming the path.
std::string read_text_file(const std::string& path, uint64_t limit = 1 << 20);

// A file that appears at `path` when finish() returns: written under another name, synced, renamed.
// Without finish(), no file is left. Throws WriteError.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(std::span<const std::byte> bytes);
  FileDigest finish();

 private:
  std::string path_, partial_;
  int fd_;
  FileDigest digest_;
};

// Writes a whole file through OutputFile.
void write_text_file(const std::string& path, std::string_view text);

// A log: each text is appended whole or not at all. Throws RunError.
class LogFile {
 public:
  LogFile(const std::string& path, int flags);  // O_EXCL, O_TRUNC
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  void cut(int64_t bytes);             // truncates to this many bytes
  void append(std::string_view text);  // after a failed write, removes the part written

 private:
  std::string path_;
  int fd_;
};

// Makes a folder and those above it. Throws WriteError.
void make_folders(const std::string& path);

// Makes renames in a folder durable. Throws WriteError.
void sync_folder(const std::string& path);

}  // namespace bv
