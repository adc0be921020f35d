#include "base/error.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <tuple>

#include "base/machine_error.h"
#include "base/text.h"
#include "base/wait.h"

namespace bv {
namespace {

namespace fs = std::filesystem;

std::string way_to_more_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t plenty = 65536;
  const std::string now = "this process may open " + std::to_string(limit.rlim_cur) + " files; ";
  if (limit.rlim_cur < limit.rlim_max)
    return now + "`ulimit -n " + std::to_string(std::min(limit.rlim_max, plenty)) +
           "` allows it more";
  return now + "that is its hard limit, so raise it where the shell or the job is started: " +
         "`ulimit -n " + std::to_string(std::max(plenty, limit.rlim_cur * 2)) + "`";
}

// The file or folder itself, or the first folder above it that may not be entered; of a link, those
// of its target.
std::string way_to_permission(fs::path path) {
  std::error_code error;
  if (const fs::path target = fs::read_symlink(path, error); !error)
    path = (path.parent_path() / target).lexically_normal();
  fs::path above;
  for (const fs::path& part : path.parent_path()) {
    above /= part;
    std::ignore = fs::status(above / ".", error);
    if (error == std::errc::permission_denied)
      return "its folder's owner can allow it: `chmod a+rx " + shell_word(above) + "`";
  }
  const char* const mode = fs::is_directory(path, error) ? "a+rx " : "a+r ";
  return "its owner can allow it: `chmod " + (mode + shell_word(path)) + "`";
}

std::string way_out(const std::string& path, int code) {
  switch (code) {
    case EMFILE:
      return way_to_more_descriptors();
    case ENFILE:
      return "all programs of this machine together have too many open files; close some, or raise "
             "`sysctl fs.file-max`";
    case ENOMEM:
      return "use fewer --workers, a smaller --cache-mb, or fewer processes (-n)";
    case EACCES:
    case EPERM:
      return way_to_permission(path);
    case ENOSPC:
    case EDQUOT:
      return "`df -h " + shell_word(fs::path(path).parent_path() / ".") + "` shows what is left";
    case ESTALE:
      return "the file server no longer knows it: mount the folder again, then continue";
    default:
      return "the disk or the file server failed (`dmesg` may say why); the file may be whole";
  }
}

}  // namespace

// The message names the program as the user called it (as_called).
std::string error_line(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) || dynamic_cast<const std::length_error*>(&e))
    return "out of memory; try a smaller --batch, --cache-mb or --workers, or fewer processes (-n)";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&e)) {
    const std::string path = printable(file->path1().string(), std::string::npos);
    return (path.empty() ? "a file or folder can't be used" : path) + ": " + file->code().message();
  }
  return as_called(printable(e.what(), std::string::npos));
}

bool is_machine_error(int code) {
  constexpr int of_the_file[] = {0,     ENOENT, ENOTDIR, ELOOP,  ENAMETOOLONG,
                                 ENXIO, EISDIR, EINVAL,  ENODEV, EOVERFLOW};
  return std::ranges::count(of_the_file, code) == 0;
}

MachineError::MachineError(const std::string& path, int error_code)
    : RunError(path + ": " + std::strerror(error_code) + "; " + way_out(path, error_code)),
      code(error_code) {}

bool there_is(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return true;
  if (is_machine_error(errno)) throw MachineError(path, errno);
  return false;
}

void print_error_line(const std::string& line) {
  constexpr int patience_ms = 2000;
  const std::string text = line + "\n";
  pollfd item{STDERR_FILENO, POLLOUT, 0};
  if (wait_for_files({&item, 1}, patience_ms) < 1) return;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nothing can be done
}

}  // namespace bv
