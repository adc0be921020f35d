// For LD_PRELOAD: delays each open by SLOW_OPEN_MS milliseconds, as over a network, counts opens
// and reads, and writes the counts to the file COUNT_CALLS when the program ends.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

struct Calls {
  std::atomic<long> opens{0}, reads{0};
  long microseconds = 0;
  const char* file = nullptr;

  Calls() {
    if (const char* ms = std::getenv("SLOW_OPEN_MS"))
      microseconds = static_cast<long>(1000 * std::strtod(ms, nullptr));
    file = std::getenv("COUNT_CALLS");
  }
  ~Calls() {
    std::FILE* out = file ? std::fopen(file, "w") : nullptr;
    if (!out) return;
    std::fprintf(out, "%ld %ld\n", opens.load(), reads.load());
    std::fclose(out);
  }
} calls;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int slow_open(const char* name, const char* path, int flags, mode_t mode) {
  static auto* const open_64 = next<int(const char*, int, ...)>("open64");
  static auto* const open_32 = next<int(const char*, int, ...)>("open");
  ++calls.opens;
  if (calls.microseconds > 0) usleep(static_cast<useconds_t>(calls.microseconds));
  return (name[4] ? open_64 : open_32)(path, flags, mode);
}

mode_t mode_of(int flags, va_list list) { return flags & O_CREAT ? va_arg(list, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return slow_open("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return slow_open("open64", path, flags, mode);
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  ++calls.reads;
  return real(fd, to, bytes, offset);
}

ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) {
  return pread(fd, to, bytes, offset);
}

}  // extern "C"
