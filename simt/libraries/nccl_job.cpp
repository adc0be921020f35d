#include "simt/libraries/nccl_job.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <map>
#include <stdexcept>
#include <utility>

namespace simt::nccl {
namespace {

constexpr int spins = 200;
constexpr int moment_ms = 10;
// How long all ranks must be idle before a deadlock is reported: another of their threads may still
// queue work. If a rank has died, its peers or the launcher get more time to report that first.
constexpr int patience_ms = 500, patience_with_the_dead_ms = 3000;
// Rounded up to pages, with at least one spare byte.
size_t pages(size_t bytes) { return (bytes + 4096) / 4096 * 4096; }

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

// False for a process that has not begun.
bool has_ended(pid_t pid) {
  if (pid == 0) return false;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd item{fd, POLLIN, 0};
  const bool ended = poll(&item, 1, 0) == 1;
  close(fd);
  return ended;
}

}  // namespace

Mapping::Mapping(int fd, size_t offset, size_t bytes) : bytes_(bytes) {
  address_ = MAP_FAILED;
  // Writing a spare byte at the end makes the file large enough.
  if (pwrite(fd, "", 1, static_cast<off_t>(offset + bytes)) == 1)
    address_ =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address_ == MAP_FAILED) throw std::runtime_error("no memory for NCCL's processes to share");
}
Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Mapping::~Mapping() {
  if (address_) munmap(address_, bytes_);
}

struct alignas(64) Job::Board {
  static constexpr int max_waits = 32;
  std::atomic<uint32_t> bell, asleep;
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> version;  // odd while the rest is written
  std::atomic<int32_t> count;     // 0: not known to be waiting
  Wait waits[max_waits];
};

struct Job::Memory {
  std::atomic<uint64_t> end, progress;  // bytes allocated; number of changes others may wait for
  std::atomic<int32_t> communicators;
  std::atomic<uint32_t> has_spoken;
  Board boards[max_ranks];
};

std::string Job::create() {
  const int fd = memfd_create("nccl", MFD_CLOEXEC);
  if (fd < 0) return "";
  const Mapping mapping(fd, 0, sizeof(Memory));
  mapping.as<Memory>()->communicators = 1;
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
}

Job::Job(const std::string& path, int rank, int size)
    : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)),
      rank_(rank),
      size_(size),
      mapping_(fd_, 0, sizeof(Memory)),
      memory_(mapping_.as<Memory>()) {
  memory_->boards[rank_].pid = getpid();
}
Job::~Job() { close(fd_); }

int Job::next_communicator() { return memory_->communicators.fetch_add(1); }
size_t Job::first_area(size_t bytes) {
  const size_t begin = pages(sizeof(Memory));
  uint64_t none = 0;
  memory_->end.compare_exchange_strong(none, begin + pages(bytes));
  return begin;
}
size_t Job::reserve(size_t bytes) { return memory_->end.fetch_add(pages(bytes)); }

void Job::ring(int rank) {
  ++memory_->progress;
  if (rank == rank_) return;
  Board& board = memory_->boards[rank];
  ++board.bell;
  if (board.asleep) syscall(SYS_futex, &board.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---- Waiting ------------------------------------------------------------------------------------
void Job::sleep(const std::vector<Wait>& waits) {
  if (memory_->has_spoken) _exit(1);
  Board& own = memory_->boards[rank_];
  const auto one_is_over = [&] {
    return std::any_of(waits.begin(), waits.end(), [&](const Wait& w) { return is_over(w); });
  };
  const uint32_t rung = own.bell;
  for (int i = 0; i < spins; ++i) {
    if (own.bell != rung) return;
    __builtin_ia32_pause();
  }
  ++own.version;
  // If the waits don't all fit, this rank counts as not waiting.
  own.count = waits.size() > Board::max_waits ? 0 : static_cast<int32_t>(waits.size());
  std::copy_n(waits.begin(), own.count.load(), own.waits);
  ++own.version;
  own.asleep = 1;
  if (own.bell == rung && !one_is_over()) {
    const timespec limit{0, moment_ms * 1000000L};
    syscall(SYS_futex, &own.bell, FUTEX_WAIT, rung, &limit, nullptr, 0);
    if (own.bell == rung) look_for_deadlock();
  }
  own.asleep = 0;
  ++own.version;
  own.count = 0;
  ++own.version;
}

void Job::end(const std::string& line) {
  if (memory_->has_spoken.exchange(1)) _exit(1);
  const std::string text = "simt: " + line + "\n";
  const bool written = write(STDERR_FILENO, text.data(), text.size()) >= 0;
  _exit(written ? 1 : 2);
}

// ---- Deadlock -----------------------------------------------------------------------------------
// Reads a word of a communicator whose memory may not be mapped here.
uint64_t Job::word(uint64_t offset) const {
  uint64_t value = 0;
  return pread(fd_, &value, sizeof value, static_cast<off_t>(offset)) == sizeof value ? value : 0;
}

std::vector<Wait> Job::waits_of(int rank, uint64_t* version) const {
  const Board& board = memory_->boards[rank];
  *version = board.version;
  if (*version % 2) return {};
  std::vector<Wait> waits(board.waits,
                          board.waits + std::clamp(board.count.load(), 0, Board::max_waits));
  return board.version == *version ? waits : std::vector<Wait>{};
}

// Describes the deadlock if this rank waits forever, as none of the ranks that it waits for can
// continue, nor any that these wait for, and so on; otherwise returns "". Reads the boards'
// versions twice: if none has changed, all boards show the same moment.
std::string Job::deadlock(bool* one_has_ended) const {
  std::vector<int> ranks{rank_};
  std::vector<uint64_t> versions;
  std::map<int, std::string> words;
  *one_has_ended = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    std::string& says = words[rank] = "rank " + std::to_string(rank);
    uint64_t version = 0;
    const std::vector<Wait> waits = waits_of(rank, &version);
    versions.push_back(version);
    if (has_ended(memory_->boards[rank].pid)) {
      says += " has ended";
      *one_has_ended = true;
      continue;
    }
    if (waits.empty()) return "";
    for (const Wait& w : waits) {
      if (is_over(w)) return "";
      says += (&w == &waits[0] ? " waits in " : " and in ") + std::string(w.what) + " rank " +
              std::to_string(w.peer) + " (operation " + std::to_string(w.operation) +
              " of communicator " + std::to_string(w.communicator) + ")";
      if (std::find(ranks.begin(), ranks.end(), w.peer) == ranks.end()) ranks.push_back(w.peer);
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i)
    if (memory_->boards[ranks[i]].version != versions[i]) return "";
  std::string line;
  for (const auto& [rank, says] : words) line += (line.empty() ? "deadlock: " : ", ") + says;
  return line;
}

void Job::look_for_deadlock() {
  bool one_has_ended = false;
  const uint64_t progress = memory_->progress;
  const std::string line = deadlock(&one_has_ended);
  if (line.empty()) {
    if (progress != seen_progress_) dead_since_ms_ = -1;
    return;
  }
  if (dead_since_ms_ < 0 || progress != seen_progress_) {
    dead_since_ms_ = now_ms();
    seen_progress_ = progress;
  }
  if (now_ms() - dead_since_ms_ >= (one_has_ended ? patience_with_the_dead_ms : patience_ms))
    end(line);
}

}  // namespace simt::nccl
