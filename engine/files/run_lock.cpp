// flock() on a file of its own, which names the owner: a folder can't be locked on NFS.
#include "engine/files/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files/file.h"
#include "base/wait.h"

namespace bv {
namespace {

std::string host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// "process 123", and its machine if not this one. Retries: the owner may not have written it yet.
std::string owner(int fd) {
  char text[320] = "";
  for (int attempt = 0; attempt < 50 && pread(fd, text, sizeof text - 1, 0) <= 0; ++attempt)
    pause_ms(2);
  const std::string line = text;
  const size_t space = line.find(' ');
  if (space == line.npos) return "another process";
  const std::string machine = line.substr(space + 1);
  return "process " + line.substr(0, space) + (machine == host() ? "" : " on " + machine);
}

bool same_file(int fd, const std::string& path) {
  struct stat open_one, named;
  return fstat(fd, &open_one) == 0 && stat(path.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

}  // namespace

RunLock::RunLock(const std::string& folder) : path_(folder + "/" + run_lock_name) {
  while (!take(folder)) {
  }
  const std::string text = std::to_string(getpid()) + " " + host();
  // The text is only for the message of a process that finds the folder locked: it may be missing.
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, text.data(), text.size(), 0) < 0) return;
}

// False: a run has just ended and removed this file; the next attempt makes a new one.
bool RunLock::take(const std::string& folder) {
  try {
    fd_ = open_regular(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
  } catch (const FileError& e) {
    throw UserError(path_ + ": can't be made: " + e.what());
  }
  int result;
  while ((result = flock(fd_, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
  }
  if (result != 0 && errno != EWOULDBLOCK) {
    warning_ = "warning: " + folder + " can't be locked (" + std::strerror(errno) +
               "); make sure that no other run uses it";
    return true;
  }
  const bool current = same_file(fd_, path_);
  if (result == 0 && current) return true;
  const std::string who = result != 0 && current ? owner(fd_) : "";
  close(fd_);
  if (!who.empty()) throw UserError(folder + " is in use by " + who);
  return false;
}

RunLock::~RunLock() {
  unlink(path_.c_str());  // before close(), or another process might lock a file without a name
  close(fd_);
}

}  // namespace bv
