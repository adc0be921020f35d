// The memory of the stand-in's device. The host cannot touch it: its pages are closed but while
// queued operations run. (Open, they are open to all threads of the process: a thread that touches
// device memory just then is not noticed.)
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace simt::host {

struct Allocation {
  uintptr_t begin;
  size_t bytes;
  uintptr_t pages, pages_end;  // with the canaries on both sides; no page on either side of these
};

class DeviceMemory {
 public:
  void* allocate(size_t bytes);  // null: there is not as much
  bool release(void*);           // false: never allocated, or released before
  void release_all();
  size_t allocated() const { return allocated_; }

  bool holds(const void*) const;  // whether the address is one of the device's
  // Whether all of [p, p + bytes) may be used; if not, what is wrong with it.
  std::string refusal(const void* p, size_t bytes) const;
  // "0x200000000108 is 8 bytes into an allocation of 1024 bytes made by cudaMalloc"
  void describe(uintptr_t address, char* text, size_t size) const;

  void open();
  void close();
  // The first byte found written beside an allocation, in words; empty: none. Repairs it.
  std::string overrun();

 private:
  uintptr_t reserve(size_t bytes, size_t alignment);
  const Allocation* nearest(uintptr_t address, bool& freed) const;

  // Recursive: a fault may come from under it, and is to be described all the same.
  mutable std::recursive_mutex mutex_;
  struct Range {
    uintptr_t begin, end;
  };
  // Of address space; no address is used a second time, so that what was freed stays closed.
  static constexpr size_t max_ranges = 64;
  Range ranges_[max_ranges];
  std::atomic<size_t> n_ranges_ = 0;
  uintptr_t next_ = 0;
  std::map<uintptr_t, Allocation> live_, freed_;  // by their pages
  std::atomic<size_t> allocated_ = 0;
  bool open_ = false;
};

DeviceMemory& device_memory();

// For the message of a fault: the operation that runs; whether it does so on this thread (a kernel's
// blocks run on others, too); whether this thread is one of the host's, known by its calls.
inline std::atomic<const char*> running = nullptr;
inline thread_local bool runs_here = false, is_host_thread = false;

}  // namespace simt::host
