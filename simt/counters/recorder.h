// Records the accesses of a running block's threads, and counts them per warp when its lanes wait
// for each other. Each host thread that runs blocks has one recorder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <utility>
#include <vector>

#include "simt/counters/access.h"
#include "simt/counters/counters.h"
#include "simt/counters/counting.h"
#include "simt/counters/lines.h"

namespace simt {

class Recorder {
 public:
  static Recorder& here() {  // the calling host thread's, never destroyed
    if (!here_) here_ = new Recorder;
    return *here_;
  }
  // Whether a kernel's own code is running: checked before each note(), as most code is not a
  // kernel's.
  static bool runs() { return list_; }

  void begin(unsigned threads, const Extent& block);  // block: its index in the grid
  // Called for the launch's shared memory, and for the memory of each __shared__ variable.
  void shared_memory(const void* begin, size_t bytes, SharedName name = {}) {
    if (!bytes) return;
    shared_.push_back({reinterpret_cast<uintptr_t>(begin), bytes});
    name.bytes = bytes;
    if (Lines::on) lines.shared_memory(std::move(name));
  }
  void resume(unsigned thread) { list_ = &lists_[thread], thread_ = thread; }
  void pause() { list_ = nullptr; }  // following accesses are not the kernel's
  void note(const void* place, AccessKind, unsigned bytes, const void* address);
  // The kernel calls the stand-in at `place`, to which the call's events are attributed.
  void called(const void* place, std::source_location site) {
    place_ = place;
    if (Lines::on) lines.at_site(place, site);
  }
  // The running thread executes an instruction that only `make view` records.
  void mark(AccessKind kind) {
    if (Lines::on && list_) list_->push_back(Access::of(place_, kind, 0, nullptr));
  }
  void enter_piece(const void* place) { lines.enter_piece(thread_, place); }
  // barrier(): all warps of the block have reached one. exchange(): the running thread's warp
  // executes a shuffle, vote or mma.
  void barrier();
  void exchange(AccessKind, unsigned lanes);
  // TMA reads or writes these bytes of global memory.
  void tma(const void* address, size_t bytes, bool written);
  void count_warp(unsigned begin);  // counts its lanes' accesses so far
  void end();                       // at the block's end: adds the rest to the launch's counts

  Counters counters;
  Lines lines;
  // Set by simt/host, which is a layer above.
  static inline bool (*is_device_address)(const void*) = [](const void*) { return false; };

 private:
  bool is_shared(uintptr_t address) const {
    for (const auto& [begin, bytes] : shared_)
      if (address - begin < bytes) return true;
    return false;
  }
  static constexpr size_t most_listed = size_t{1} << 23;  // 128 MiB
  [[noreturn]] void refuse_more() const;
  void count(const Access* by_lane[32], unsigned first, unsigned lanes);
  void count_apart(size_t begin, unsigned first, unsigned lanes);
  GlobalAccesses count_global(const Access&, const uintptr_t (&addresses)[32], unsigned n);
  static SharedAccesses count_shared(unsigned bytes, const uintptr_t (&addresses)[32],
                                     uint32_t lanes);
  void tell_lines(const Access* by_lane[32], unsigned first, unsigned lanes, uint32_t in_shared,
                  GlobalAccesses, SharedAccesses);

  std::vector<std::vector<Access>> lists_;  // of each thread
  static constinit inline thread_local std::vector<Access>* list_ =
      nullptr;  // of the thread that runs
  static constinit inline thread_local Recorder* here_ = nullptr;
  unsigned threads_ = 0, thread_ = 0;
  const void* place_ = nullptr;
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

// For functions that kernels call: records the call's place, and an event for `make view`.
[[gnu::always_inline]] inline void called([[maybe_unused]] std::source_location site,
                                          [[maybe_unused]] AccessKind mark = {}) {
  if constexpr (counting) {
    Recorder::here().called(__builtin_return_address(0), site);
    if (mark != AccessKind{}) Recorder::here().mark(mark);
  }
}

}  // namespace simt
