// A file descriptor with an owner.
#pragma once
#include <unistd.h>

#include <utility>

namespace bv {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close_now(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close_now() {
    if (const int fd = std::exchange(fd_, -1); fd >= 0) close(fd);
  }

 private:
  int fd_;
};

}  // namespace bv
