// The memory of the stand-in's device. The host cannot access it: its pages are open (accessible)
// only while queued operations run. (They are then open to the whole process: an access by a host
// thread at that moment goes unnoticed.) Managed memory is always open.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace simt::host {

struct Allocation {
  uintptr_t begin;
  size_t bytes;
  uintptr_t pages,
      pages_end;  // including the canaries on either side; surrounded by unmapped pages
  bool managed;
  std::string name;  // if the program set it (label)
  size_t element_bytes;
  std::string place = {};  // the line that allocated it (made_at)
  unsigned number = 0;     // among the allocations of that line, from 1
};

class DeviceMemory {
 public:
  void* allocate(size_t bytes, bool managed = false);  // null if there is not enough
  bool release(void*);  // false if never allocated, or already released
  void release_all();
  size_t allocated() const { return allocated_; }
  // Subtracts these bytes from the memory that is left, until release_all(). False if less is left.
  bool take(size_t bytes);
  size_t left() const;  // for allocations

  bool holds(const void*) const;    // whether it is a device address
  bool manages(const void*) const;  // whether it is one that the host may touch, too
  // The end of the allocation that holds p; 0 if none does.
  uintptr_t end_of(const void* p) const;
  // Why [p, p + bytes) may not be used; empty if it may.
  std::string refusal(const void* p, size_t bytes) const;
  // "0x200000000108 is 8 bytes into an allocation of 1024 bytes made by cudaMalloc"
  void describe(uintptr_t address, char* text, size_t size) const;

  // Sets the program's name for an allocation, "sums", and the size of its elements in bytes, 0 if
  // that isn't known.
  void label(const void*, const std::string& name, size_t element_bytes);
  // Sets the place in the program, "my.cu:46", that called cudaMalloc.
  void made_at(const void*, const std::string& place);
  // name(), and if that line made several allocations: "p[3] (allocation 2 of my.cu:46)"
  std::string name_with_place(uintptr_t address) const;
  // "sums[3]", "byte 12 of sums", or "byte 12 of an allocation of 1024 bytes made by cudaMalloc"
  std::string name(uintptr_t address) const;

  void each(const std::function<void(uintptr_t begin, size_t bytes)>&) const;
  void open();
  void open_at(const void*);  // the allocation that holds it, if one does
  void close();
  // Describes the first byte written outside an allocation, and repairs it; empty if none was.
  std::string overrun();

 private:
  uintptr_t reserve(size_t bytes, size_t alignment);
  const Allocation* nearest(uintptr_t address, bool& freed) const;

  // Recursive: a fault may happen while it is held, and must be described, too.
  mutable std::recursive_mutex mutex_;
  struct Range {
    uintptr_t begin, end;
  };
  // Address space; no address is reused, so that freed memory stays closed.
  static constexpr size_t max_ranges = 64;
  Range ranges_[max_ranges];
  std::atomic<size_t> n_ranges_ = 0;
  uintptr_t next_ = 0;
  std::map<uintptr_t, Allocation> live_, freed_;  // by their pages
  std::map<std::string, unsigned> made_;          // how many, by place
  std::atomic<size_t> allocated_ = 0, taken_ = 0;
  bool open_ = false;              // all allocations are
  std::vector<uintptr_t> opened_;  // otherwise only these are open, by their pages
};

DeviceMemory& device_memory();

// For a fault's message: the running operation; whether it runs on this thread (a kernel's blocks
// run on others, too); whether this thread is one of the program's: it has called the runtime; the
// host function whose thread this is.
inline std::atomic<const char*> running = nullptr;
inline thread_local const char* host_function = nullptr;
inline thread_local bool runs_here = false, is_host_thread = false;

}  // namespace simt::host
