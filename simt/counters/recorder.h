// Records the accesses of a running block's threads and counts them once all lanes of a warp have
// made them. Each host thread that runs blocks has one recorder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt/counters/counters.h"
#include "simt/counters/counting.h"

namespace simt {

enum class AccessKind : uint8_t { load, store, atomic, ldmatrix, cp_async };

// An access by one thread. `instruction` tells requests apart: the code address in the lower 48
// bits, the kind, and the size.
struct Access {
  uint64_t instruction;
  uintptr_t address;

  static Access of(const void* place, AccessKind kind, unsigned bytes, const void* address) {
    return {(reinterpret_cast<uint64_t>(place) & 0xFFFF'FFFF'FFFF) | uint64_t(kind) << 48 |
                uint64_t{bytes} << 56,
            reinterpret_cast<uintptr_t>(address)};
  }
  AccessKind kind() const { return AccessKind(instruction >> 48 & 0xFF); }
  unsigned bytes() const { return unsigned(instruction >> 56); }
};

class Recorder {
 public:
  static Recorder& here() {  // the calling host thread's, never destroyed
    if (!here_) here_ = new Recorder;
    return *here_;
  }
  // Whether a kernel's own code is running: checked before each note(), as most code is not a
  // kernel's.
  static bool runs() { return list_; }

  void begin(unsigned threads);
  // The launch's shared memory, and each __shared__ variable, which has memory of its own.
  void shared_memory(const void* begin, size_t bytes) {
    if (bytes) shared_.push_back({reinterpret_cast<uintptr_t>(begin), bytes});
  }
  void resume(unsigned thread) { list_ = &lists_[thread]; }
  void pause() { list_ = nullptr; }  // following accesses are not the kernel's
  void note(const void* place, AccessKind, unsigned bytes, const void* address);
  void count_warp(unsigned begin);  // counts its lanes' accesses so far
  void end();                       // at the block's end: adds the rest to the launch's counts

  Counters counters;
  // Set by simt/host, which is a layer above.
  static inline bool (*is_device_address)(const void*) = [](const void*) { return false; };

 private:
  bool is_shared(uintptr_t address) const {
    for (const auto& [begin, bytes] : shared_)
      if (address - begin < bytes) return true;
    return false;
  }
  void count(const Access* by_lane[32], unsigned lanes);
  void count_apart(size_t begin, unsigned first, unsigned lanes);
  void count_global(const Access&, const uintptr_t (&addresses)[32], unsigned n);
  static void count_shared(SharedAccesses&, unsigned bytes, const uintptr_t (&addresses)[32],
                           uint32_t lanes);

  std::vector<std::vector<Access>> lists_;  // of each thread
  static constinit inline thread_local std::vector<Access>* list_ =
      nullptr;  // of the thread that runs
  static constinit inline thread_local Recorder* here_ = nullptr;
  unsigned threads_ = 0;
  struct Range {
    uintptr_t begin;
    size_t bytes;
  };
  std::vector<Range> shared_;
};

// Called after a launch: adds its counts to its kernel's.
void count_launch(const char* kernel);
// Counts a library call, or an operation without a kernel, as one pass over these bytes.
void count_bytes(const char* name, double read, double written);

}  // namespace simt
