#include "kernels/comm/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace bv {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t page = 4096;

size_t bytes_of_board(int size) {
  const size_t bytes = sizeof(Board) + size_t(size) * sizeof(RankBoard);
  return (bytes + page - 1) / page * page;
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void* map(int fd, size_t bytes, size_t offset) {
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
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

// The number of ranks that the file's board is for.
int read_size(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) fail("can't read the memory shared by the processes");
  if (info.st_size < static_cast<off_t>(sizeof(Board)))
    throw std::runtime_error("the memory shared by the processes is too small");
  void* address = map(fd, sizeof(Board), 0);
  const Board& board = *static_cast<Board*>(address);
  const bool ours = board.magic.load(std::memory_order_acquire) == Board::magic_number;
  const int size = board.size;
  munmap(address, sizeof(Board));
  if (!ours || size < 1 || static_cast<off_t>(bytes_of_board(size)) > info.st_size)
    throw std::runtime_error("the memory shared by the processes isn't of this program");
  return size;
}

}  // namespace

SharedRegion::SharedRegion(int fd, int size) : fd_(fd), board_bytes_(bytes_of_board(size)) {
  address_ = map(fd, board_bytes_, 0);
}

SharedRegion SharedRegion::create(int size) {
  const int fd = memfd_create("barevision", MFD_CLOEXEC);
  if (fd < 0) fail("can't make memory for the processes to share");
  if (ftruncate(fd, static_cast<off_t>(bytes_of_board(size))) != 0) {
    close(fd);
    fail("can't size the memory shared by the processes");
  }
  SharedRegion region(fd, size);
  Board& board = *new (region.address_) Board{};
  board.size = size;
  board.failed_exit_code = Board::no_exit_code;
  for (int r = 0; r < size; ++r) make_alive_mutex(&(new (&region.rank(r)) RankBoard{})->alive);
  board.magic.store(Board::magic_number, std::memory_order_release);
  return region;
}

SharedRegion SharedRegion::open(int fd) {
  const int size = read_size(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) fail("can't keep the shared memory to this process");
  return SharedRegion(fd, size);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      address_(std::exchange(other.address_, nullptr)),
      board_bytes_(other.board_bytes_),
      data_bytes_(other.data_bytes_),
      data_(std::exchange(other.data_, nullptr)) {}

SharedRegion::~SharedRegion() {
  if (data_) munmap(data_, data_bytes_);
  if (address_) munmap(address_, board_bytes_);
  if (fd_ >= 0) close(fd_);
}

RankBoard& SharedRegion::rank(int r) const {
  auto* first = reinterpret_cast<RankBoard*>(static_cast<std::byte*>(address_) + sizeof(Board));
  return first[r];
}

std::byte* SharedRegion::map_data(size_t bytes) {
  // Every rank sets the same size, so who is first doesn't matter.
  if (ftruncate(fd_, static_cast<off_t>(board_bytes_ + bytes)) != 0)
    fail("can't size the memory shared by the processes");
  data_ = map(fd_, bytes, board_bytes_);
  data_bytes_ = bytes;
  return static_cast<std::byte*>(data_);
}

bool SharedRegion::claim_error(int exit_code) {
  if (board().error_printed.exchange(1)) return false;
  board().failed_exit_code = exit_code;
  return true;
}

void SharedRegion::end_waiting() {
  board().ending = 1;
  futex_wake_all(board().generation);
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int milliseconds) {
  const timespec limit{milliseconds / 1000, (milliseconds % 1000) * 1000000L};
  // Whatever it returns (woken, late, interrupted), the caller looks at the word again.
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bv
