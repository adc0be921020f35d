// The memory that the processes of a run share: a control block, through which the launcher and the
// ranks watch each other, and an area for each communicator. It is an anonymous file (memfd), so
// nothing remains after the run, however it ends.
#pragma once
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace bv {

enum class RankState : uint32_t { absent, here, left };

// One rank's part of the control block. A rank holds `alive` while it runs; when the process ends,
// the kernel marks the mutex, which the others see even before the process is reaped.
struct alignas(64) RankStatus {
  std::atomic<RankState> state;
  std::atomic<Busy> busy;          // doing something long on its own; not stuck
  std::atomic<uint64_t> waits;     // waits for the device begun so far (PeerWatch)
  std::atomic<int64_t> heartbeat;  // time of the last one, ms of the monotonic clock
  pthread_mutex_t alive;
  std::atomic<int64_t> step;  // the rank's current step, counted from 1; 0: before its first
};

struct alignas(64) ControlBlock {
  static constexpr uint64_t magic_number = 0x31306e6f69736976;
  static constexpr int no_exit_code = -1;

  std::atomic<uint64_t> magic;
  std::atomic<int32_t> size;              // ranks
  std::atomic<int32_t> error_printed;     // 1: a line with the reason for the end was printed
  std::atomic<int32_t> failed_exit_code;  // of the rank that printed it, or no_exit_code
  std::atomic<int32_t> culprit;           // 1 + the rank that the printed line blames; 0: none
  std::atomic<uint32_t> ending;           // 1: the launcher is ending the run; ranks stop waiting
  std::atomic<uint64_t> bucket_bytes;     // must be the same for all ranks; 0: not set yet
  std::atomic<uint64_t> areas_end;        // where the next communicator's area begins
  std::array<char, 512> error;            // the line that was printed, padded with zeros
  std::array<char, 4096> folder;          // the run's, set by rank 0, padded with zeros
};

// Memory that this process has mapped: zeros at first.
class SharedArea {
 public:
  SharedArea(void* address, size_t bytes) : address_(address), bytes_(bytes) {}
  SharedArea(SharedArea&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_) {}
  ~SharedArea();
  std::byte* data() const { return static_cast<std::byte*>(address_); }

 private:
  void* address_;
  size_t bytes_;
};

// One process's view of the region. Throws std::system_error, or std::runtime_error if the file is
// not such a region.
class SharedRegion {
 public:
  // A new region for `size` ranks. The file descriptor is closed on exec.
  static SharedRegion create(int size);
  // Opens the region of a descriptor received from the launcher or rank 0, and owns the descriptor.
  static SharedRegion open(int fd);
  SharedRegion(const SharedRegion&) = delete;
  ~SharedRegion();

  int fd() const { return fd_; }
  ControlBlock& control() const { return *static_cast<ControlBlock*>(address_); }
  RankStatus& rank(int r) const { return reinterpret_cast<RankStatus*>(&control() + 1)[r]; }
  // Bytes that an area of `bytes` takes in the region.
  static size_t area_bytes(size_t bytes);
  // Maps `bytes` at an offset after the control block; all processes that share the area must pass
  // the same offset.
  SharedArea map_area(size_t offset, size_t bytes) const;

  // True for the first process that calls it: that one prints `line`, why the run ended.
  bool claim_error(int exit_code, const std::string& line);
  void end_waiting() { control().ending = 1; }  // of all ranks, as the run is ending

 private:
  SharedRegion(int fd, int size, bool is_new);

  int fd_;
  size_t control_bytes_;
  void* address_;
};

}  // namespace bv
