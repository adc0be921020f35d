#include "engine/base/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "engine/base/checksum.h"

namespace bv {
namespace {

std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace

WriteError::WriteError(const std::string& what, const std::string& path, int error_code)
    : RunError("can't " + what + " " + path + ": " + reason(error_code)), code(error_code) {}

bool WriteError::disk_full() const { return code == ENOSPC || code == EDQUOT; }

// O_NONBLOCK: opening a pipe that has no writer must not wait.
InputFile::InputFile(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw UserError(path + ": " + reason(errno));
  struct stat status;
  const bool known = fstat(fd_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = uint64_t(status.st_size);
    return;
  }
  const int code = errno;
  close(fd_);
  if (!known) throw UserError(path + ": " + reason(code));
  throw UserError(path + ": " + (S_ISDIR(status.st_mode) ? "a folder" : "not a regular file") +
                  " where a file is expected");
}

InputFile::~InputFile() { close(fd_); }

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw UserError(path_ + ": can't be read: " + reason(errno));
    if (n == 0) throw UserError(path_ + ": ended early: it was truncated while being read");
    out = out.subspan(size_t(n));
    offset += uint64_t(n);
  }
}

FileDigest InputFile::digest() const {
  FileDigest digest;
  std::vector<std::byte> chunk(std::min<uint64_t>(size_, 1 << 20));
  while (digest.bytes < size_) {
    const auto part =
        std::span(chunk).first(std::min<uint64_t>(chunk.size(), size_ - digest.bytes));
    read(digest.bytes, part);
    digest = {digest.bytes + part.size(), crc32c(part, digest.crc)};
  }
  return digest;
}

OutputFile::OutputFile(const std::string& path)
    : path_(path),
      partial_(path + ".partial"),
      fd_(open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw WriteError("write", path, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!partial_.empty()) unlink(partial_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // In chunks, so that the checksum reads from the cache.
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

void sync_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw WriteError("open", path, errno);
  const int code = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (code) throw WriteError("sync", path, code);
}

}  // namespace bv
