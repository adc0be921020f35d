// A shim for LD_PRELOAD. In rank 0's process it numbers the calls that change files from 1: call
// FILE_FAULT_AT fails with the errno FILE_FAULT or, if FILE_FAULT is 0, kills the process with
// SIGKILL. If FILE_FAULT_COUNT names a file, the number of calls is written there when the process
// exits normally. In all processes, opening a file whose path contains FILE_FAULT_OPEN, or reading
// one whose path contains FILE_FAULT_READ, fails with FILE_FAULT.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}
bool of_rank0() {
  const char* rank = std::getenv("RANK");
  return rank && std::strcmp(rank, "0") == 0;
}

std::atomic<int> calls{0};

// Whether this call should fail. Doesn't return if the process is to be killed.
bool fails() {
  static const bool watched = of_rank0();
  static const int at = number("FILE_FAULT_AT"), fault = number("FILE_FAULT");
  if (!watched || ++calls != at) return false;
  if (fault == 0) kill(getpid(), SIGKILL);
  errno = fault;
  return true;
}

bool changes_files(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT); }

bool is_file(int fd) {
  struct stat status;
  return fd > STDERR_FILENO && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// Whether the path contains the text of the variable; if so, sets errno.
bool is_planted(const char* path, const char* variable) {
  const char* part = std::getenv(variable);
  if (!part || !std::strstr(path, part)) return false;
  errno = number("FILE_FAULT");
  return true;
}
bool is_planted(int fd, const char* variable) {
  if (!std::getenv(variable)) return false;
  char path[4096];
  const ssize_t n =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
  path[n > 0 ? n : 0] = '\0';
  return is_planted(path, variable);
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

struct AtExit {
  ~AtExit() {
    const char* path = std::getenv("FILE_FAULT_COUNT");
    if (!path || !of_rank0()) return;
    const int made = calls;
    if (FILE* file = std::fopen(path, "w")) std::fprintf(file, "%d\n", made), std::fclose(file);
  }
} at_exit;

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (is_planted(path, "FILE_FAULT_OPEN")) return -1;
  if (changes_files(flags) && std::strncmp(path, "/dev/", 5) != 0 && fails()) return -1;
  return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}
ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  if (is_planted(fd, "FILE_FAULT_READ")) return -1;
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(fd, data, bytes, offset);
}
ssize_t write(int fd, const void* data, size_t bytes) {
  if (is_file(fd) && fails()) return -1;
  return next<ssize_t (*)(int, const void*, size_t)>("write")(fd, data, bytes);
}
int fsync(int fd) { return fails() ? -1 : next<int (*)(int)>("fsync")(fd); }
int rename(const char* from, const char* to) {
  return fails() ? -1 : next<int (*)(const char*, const char*)>("rename")(from, to);
}
int symlink(const char* target, const char* path) {
  return fails() ? -1 : next<int (*)(const char*, const char*)>("symlink")(target, path);
}
int mkdir(const char* path, mode_t mode) {
  return fails() ? -1 : next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
int unlink(const char* path) { return fails() ? -1 : next<int (*)(const char*)>("unlink")(path); }
int unlinkat(int fd, const char* path, int flags) {
  return fails() ? -1 : next<int (*)(int, const char*, int)>("unlinkat")(fd, path, flags);
}
int remove(const char* path) { return fails() ? -1 : next<int (*)(const char*)>("remove")(path); }
}
