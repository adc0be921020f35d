#include "comm/local/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace bv {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t page = 4096;

size_t bytes_of_control(int size) {
  const size_t bytes = sizeof(ControlBlock) + size_t(size) * sizeof(RankStatus);
  return (bytes + page - 1) / page * page;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void* map(int fd, size_t bytes, size_t offset) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t(offset));
  if (address == MAP_FAILED) fail("can't map the memory shared by the processes");
  return address;
}

void make_alive_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  int error = pthread_mutexattr_init(&attributes);
  if (!error) error = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (!error) error = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  if (!error) error = pthread_mutex_init(mutex, &attributes);
  if (error) throw std::system_error(error, std::generic_category(), "can't make a shared mutex");
  pthread_mutexattr_destroy(&attributes);
}

// The number of ranks the file was made for.
int read_size(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) fail("can't read the memory shared by the processes");
  if (info.st_size < off_t(sizeof(ControlBlock)))
    throw std::runtime_error("the memory shared by the processes is too small");
  void* address = map(fd, sizeof(ControlBlock), 0);
  const auto& control = *static_cast<ControlBlock*>(address);
  const bool ours = control.magic.load(std::memory_order_acquire) == ControlBlock::magic_number;
  const int size = control.size;
  munmap(address, sizeof(ControlBlock));
  if (!ours || size < 1 || off_t(bytes_of_control(size)) > info.st_size)
    throw std::runtime_error("the memory shared by the processes belongs to another program");
  return size;
}

}  // namespace

SharedRegion::SharedRegion(int fd, int size, bool is_new)
    : fd_(fd), control_bytes_(bytes_of_control(size)), address_(map(fd, control_bytes_, 0)) {
  if (!is_new) return;
  new (address_) ControlBlock{};
  control().size = size;
  control().failed_exit_code = ControlBlock::no_exit_code;
  for (int r = 0; r < size; ++r) make_alive_mutex(&(new (&rank(r)) RankStatus{})->alive);
  control().magic.store(ControlBlock::magic_number, std::memory_order_release);
}

SharedRegion::~SharedRegion() {
  munmap(address_, control_bytes_);
  close(fd_);
}

SharedRegion SharedRegion::create(int size) {
  const int fd = memfd_create("barevision", MFD_CLOEXEC);
  if (fd < 0) fail("can't make memory for the processes to share");
  if (ftruncate(fd, off_t(bytes_of_control(size))) != 0) {
    close(fd);
    fail("can't size the memory shared by the processes");
  }
  return SharedRegion(fd, size, true);
}

SharedRegion SharedRegion::open(int fd) {
  const int size = read_size(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) fail("can't keep the shared memory to this process");
  return SharedRegion(fd, size, false);
}

SharedArea::~SharedArea() {
  if (address_) munmap(address_, bytes_);
}

size_t SharedRegion::area_bytes(size_t bytes) { return (bytes + page) / page * page; }

SharedArea SharedRegion::map_area(size_t offset, size_t bytes) const {
  // Writing an area's last byte, which is unused, extends the file and never shrinks it.
  bytes = area_bytes(bytes);
  offset += control_bytes_;
  if (pwrite(fd_, "", 1, off_t(offset + bytes - 1)) != 1)
    fail("can't size the memory shared by the processes");
  return {map(fd_, bytes, offset), bytes};
}

bool SharedRegion::claim_error(int exit_code, const std::string& line) {
  if (control().error_printed.exchange(1)) return false;
  line.copy(control().error.data(), control().error.size() - 1);
  control().failed_exit_code = exit_code;
  return true;
}

}  // namespace bv
