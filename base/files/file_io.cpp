#include "base/files/file_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/files/checksum.h"

namespace bv {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace

WriteError::WriteError(const std::string& what, const std::string& path, int error_code)
    : RunError("can't " + what + " " + path + ": " + reason(error_code)), code(error_code) {}

bool WriteError::disk_full() const { return code == ENOSPC || code == EDQUOT; }

InputFile::InputFile(const std::string& path) try : path_(path), file_(path) {
} catch (const FileError& e) {
  throw UserError(path + ": " + e.what());
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const try {
  file_.read(offset, out);
} catch (const FileError& e) {
  throw UserError(path_ + ": " + e.what());
}

FileDigest InputFile::digest() const {
  FileDigest digest;
  std::vector<std::byte> chunk(std::min<uint64_t>(size(), 1 << 20));
  while (digest.bytes < size()) {
    const auto part =
        std::span(chunk).first(std::min<uint64_t>(chunk.size(), size() - digest.bytes));
    read(digest.bytes, part);
    digest = {digest.bytes + part.size(), crc32c(part, digest.crc)};
  }
  return digest;
}

std::string read_text_file(const std::string& path, uint64_t limit) try {
  const std::vector<uint8_t> bytes = read_file(path, limit);
  return {bytes.begin(), bytes.end()};
} catch (const FileError& e) {
  throw UserError(path + ": " + e.what());
}

// Always creates a new file: a leftover or a pipe of that name is unlinked, never opened.
OutputFile::OutputFile(const std::string& path) : path_(path), partial_(path + ".partial") {
  unlink(partial_.c_str());
  fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw WriteError("write", path, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!partial_.empty()) unlink(partial_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // In chunks of 1 MiB, so that the checksum finds the bytes still in the cache.
    const ssize_t n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), 1 << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw WriteError("write", path_, errno);
    const auto written = bytes.first(size_t(n));
    digest_ = {digest_.bytes + written.size(), crc32c(written, digest_.crc)};
    bytes = bytes.subspan(size_t(n));
  }
}

FileDigest OutputFile::finish() {
  if (fsync(fd_) != 0) throw WriteError("sync", path_, errno);
  const int fd = fd_;
  fd_ = -1;
  if (close(fd) != 0) throw WriteError("close", path_, errno);
  if (rename(partial_.c_str(), path_.c_str()) != 0) throw WriteError("write", path_, errno);
  partial_.clear();
  return digest_;
}

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw WriteError("make", path, error.value());
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

LogFile::LogFile(const std::string& path, int flags) try
    : path_(path), fd_(open_regular(path, O_WRONLY | O_CREAT | O_APPEND | flags)) {
} catch (const FileError& e) {
  throw RunError(path + ": can't be opened: " + e.what());
}

LogFile::~LogFile() { close(fd_); }

void LogFile::cut(int64_t bytes) {
  if (ftruncate(fd_, bytes) != 0) throw RunError(path_ + ": can't be truncated: " + reason(errno));
}

void LogFile::append(std::string_view text) {
  const off_t before = lseek(fd_, 0, SEEK_END);
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int why = errno;
      cut(before);
      throw RunError(path_ + ": can't be written: " + reason(why));
    }
    text.remove_prefix(size_t(n));
  }
}

void sync_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw WriteError("open", path, errno);
  const int code = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (code) throw WriteError("sync", path, code);
}

}  // namespace bv
