#include "base/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/machine_error.h"

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

// The descriptor of a regular file; throws FileError for an errno or another kind of file.
int require_regular(const std::string& path, int fd, int code, int flags) {
  constexpr const char* other_kind = "not a regular file";
  if (code == ENXIO) throw FileError(other_kind);  // a pipe or socket, for writing
  if (code == ENOENT || code == ELOOP) throw FileError(why_missing(path, flags));
  if (code != 0) throw FileError(std::strerror(code));
  struct stat status;
  const int failure = fstat(fd, &status) == 0 ? 0 : errno;
  if (failure == 0 && S_ISREG(status.st_mode)) return fd;
  close(fd);
  throw FileError(failure != 0              ? std::strerror(failure)
                  : S_ISDIR(status.st_mode) ? "a folder where a file is expected"
                                            : other_kind);
}

// A system call, again after a signal; some file systems interrupt calls without one, so not for
// ever.
template <class Call>
auto uninterrupted(const Call& call) {
  constexpr int most = 1000;
  auto result = call();
  for (int i = 0; i < most && result < 0 && errno == EINTR; ++i) result = call();
  return result;
}

// open(2); -1 with errno.
int open_now(const std::string& path, int flags) {
  // O_NONBLOCK: opening a pipe that has no other end must not wait. Regular files ignore it.
  return uninterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666); });
}

int open_to_read(const std::string& path) {
  const int fd = open_now(path, O_RDONLY), code = fd < 0 ? errno : 0;
  if (is_machine_error(code)) throw MachineError(path, code);
  return require_regular(path, fd, code, O_RDONLY);
}

std::string path_of(int fd) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
  return error ? "a file" : path.string();
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
  const int fd = open_now(path, flags);
  return require_regular(path, fd, fd < 0 ? errno : 0, flags);
}

RegularFile::RegularFile(const std::string& path, uint64_t limit) : fd_(open_to_read(path)) {
  const off_t end = lseek(fd_, 0, SEEK_END);
  if (end > 0) size_ = static_cast<uint64_t>(end);
  if (size_ <= limit) return;
  close(fd_);
  throw FileError("larger than " + text_of(limit));
}

RegularFile::~RegularFile() { close(fd_); }

void RegularFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = uninterrupted(
        [&] { return pread(fd_, out.data(), out.size(), static_cast<off_t>(offset)); });
    const int code = n < 0 ? errno : 0;
    if (is_machine_error(code)) throw MachineError(path_of(fd_), code);
    if (n < 0) throw FileError(std::string("can't be read: ") + std::strerror(code));
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
  std::vector<uint8_t> bytes;
  try {
    bytes.resize(file.size());
  } catch (const std::bad_alloc&) {
    throw MachineError(path, ENOMEM);
  }
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace bv
