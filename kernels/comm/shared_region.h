// The memory that the processes of one run share: a board on which launcher and ranks leave word
// for one another, and behind it the buffers of the collectives. An anonymous file (memfd) holds
// it, so nothing is left behind however a run ends.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bv {

enum class RankState : uint32_t { absent, here, left };

// What a rank shows of itself. It holds `alive` as long as it runs; the kernel marks the mutex when
// the process ends in whatever way, which the others notice even before it is reaped, and without
// looking at process ids.
struct alignas(64) RankBoard {
  std::atomic<RankState> state;
  std::atomic<uint32_t> arrivals;  // barriers that it has come to
  std::atomic<uint32_t> busy;      // 1: at something long alone; not stuck
  std::atomic<uint64_t> waits;     // for the device, begun so far (PeerWatch)
  std::atomic<int64_t> heartbeat;  // when its PeerWatch last looked, ms of the monotonic clock
  pthread_mutex_t alive;
};

struct Board {
  static constexpr uint64_t magic_number = 0x31306e6f69736976;
  static constexpr int no_exit_code = -1;

  std::atomic<uint64_t> magic;
  std::atomic<int32_t> size;              // ranks
  std::atomic<int32_t> error_printed;     // 1: a line that says why the run ends is out
  std::atomic<int32_t> failed_exit_code;  // of the rank that printed it, else no_exit_code
  std::atomic<uint32_t> ending;        // 1: the launcher is ending the run; nobody waits any more
  std::atomic<uint64_t> bucket_bytes;  // all ranks must ask for the same; 0: nobody has yet
  alignas(64) std::atomic<uint32_t> arrived;     // at the present barrier
  alignas(64) std::atomic<uint32_t> generation;  // barriers passed; what waiters sleep on
};

// One process's view of the region. Throws std::system_error, or std::runtime_error where the file
// is something else.
class SharedRegion {
 public:
  // A new region with its board for `size` ranks. The file descriptor is closed on exec.
  static SharedRegion create(int size);
  // The region behind a descriptor got from the launcher or rank 0, which it takes over.
  static SharedRegion open(int fd);
  SharedRegion(SharedRegion&&) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  ~SharedRegion();

  int fd() const { return fd_; }
  Board& board() const { return *static_cast<Board*>(address_); }
  RankBoard& rank(int r) const;
  // Maps `bytes` behind the board as well; every rank asks for the same number.
  std::byte* map_data(size_t bytes);

  // True for the one process, of all, that should print why the run ends.
  bool claim_error(int exit_code);
  void end_waiting();  // wakes all who wait in a barrier, to see that the run is ending

 private:
  SharedRegion(int fd, int size);

  int fd_ = -1;
  void* address_ = nullptr;
  size_t board_bytes_ = 0, data_bytes_ = 0;
  void* data_ = nullptr;
};

// Sleeps while `word` is `value`, until woken or `milliseconds` are over.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int milliseconds);
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace bv
