#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace bv {
namespace {

std::string text_of(uint64_t bytes) {
  constexpr uint64_t mib = uint64_t{1} << 20;
  return bytes >= mib ? std::to_string(bytes / mib) + " MiB" : std::to_string(bytes) + " bytes";
}

std::string why_missing(const std::string& path, int flags) {
  const std::string link = link_without_target(path);
  if (!link.empty()) return link;
  return flags & O_CREAT ? "no such folder" : "no such file";
}

}  // namespace

std::string link_without_target(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return "";
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) return "";
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error ? "" : "a link without a target (-> " + target.string() + ")";
}

int open_regular(const std::string& path, int flags) {
  // O_NONBLOCK: opening a pipe that has no other end must not wait. Regular files ignore it.
  const int fd = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);
  constexpr const char* other_kind = "not a regular file";
  if (fd < 0 && errno == ENXIO) throw FileError(other_kind);  // a pipe or socket, for writing
  if (fd < 0 && (errno == ENOENT || errno == ELOOP)) throw FileError(why_missing(path, flags));
  if (fd < 0) throw FileError(std::strerror(errno));
  struct stat status;
  const int failure = fstat(fd, &status) == 0 ? 0 : errno;
  if (failure == 0 && S_ISREG(status.st_mode)) return fd;
  close(fd);
  throw FileError(failure != 0              ? std::strerror(failure)
                  : S_ISDIR(status.st_mode) ? "a folder where a file is expected"
                                            : other_kind);
}

RegularFile::RegularFile(const std::string& path, uint64_t limit)
    : fd_(open_regular(path, O_RDONLY)) {
  const off_t end = lseek(fd_, 0, SEEK_END);
  if (end > 0) size_ = static_cast<uint64_t>(end);
  if (size_ <= limit) return;
  close(fd_);
  throw FileError("larger than " + text_of(limit));
}

RegularFile::~RegularFile() { close(fd_); }

void RegularFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw FileError(std::string("can't be read: ") + std::strerror(errno));
    if (n == 0) throw FileError("ended early: it was truncated while being read");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void RegularFile::will_need(uint64_t offset, uint64_t bytes) const {
  posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

std::vector<uint8_t> read_file(const std::string& path, uint64_t limit) {
  const RegularFile file(path, limit);
  std::vector<uint8_t> bytes(file.size());
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace bv
