// Which bytes of device memory nothing has written since they were allocated: no kernel, no copy,
// no fill, and, if they are managed, no host code. There is a bit for each byte, in address space
// of its own, so that neither the host nor a kernel takes a lock. Kept by `make try` only.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simt {

class Unwritten {
 public:
  static Unwritten& instance();

  void add_range(uintptr_t begin, uintptr_t end);  // device memory may lie there
  void allocated(uintptr_t begin, size_t bytes);   // and filled with `fresh`
  void released(uintptr_t begin, size_t bytes);

  void wrote(const void* to, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(to);
    if (const Range* r = range_of(begin); r && any(*r, begin, bytes)) clear(*r, begin, bytes);
  }
  // Device memory was copied, and with it whether it was written.
  void copied(void* to, const void* from, size_t bytes);
  // The first byte whose value a read of these bytes would use although nothing wrote it; 0 if
  // there is none. What may be padding of a struct doesn't count.
  uintptr_t first_used(uintptr_t begin, size_t bytes) {
    const Range* r = range_of(begin);
    return r && any(*r, begin, bytes) ? find_used(*r, begin, bytes) : 0;
  }

  // The value of new memory. A byte with another value was written, even if nothing told so, as by
  // the system for a program that reads a file into managed memory.
  static constexpr unsigned char fresh = 0xFF;

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    unsigned char* bits = nullptr;  // set: unwritten
  };
  const Range* range_of(uintptr_t address) const {
    for (size_t i = 0; i < n_ranges_; ++i)
      if (address - ranges_[i].begin < ranges_[i].end - ranges_[i].begin) return &ranges_[i];
    return nullptr;
  }
  static unsigned char* byte_of(const Range& r, uintptr_t a) { return r.bits + (a - r.begin) / 8; }
  static bool is_set(const Range& r, uintptr_t a) { return *byte_of(r, a) >> a % 8 & 1; }
  static bool any(const Range& r, uintptr_t begin, size_t bytes) {
    if (bytes > 16) return any_of_many(r, begin, bytes);
    uint32_t bits;
    std::memcpy(&bits, byte_of(r, begin), sizeof bits);
    return bits >> begin % 8 & ((1u << bytes) - 1);
  }
  static bool any_of_many(const Range&, uintptr_t begin, size_t bytes);
  static void set(const Range&, uintptr_t begin, size_t bytes);
  static void clear(const Range&, uintptr_t begin, size_t bytes);
  static bool is_unwritten(const Range&, uintptr_t address);
  static uintptr_t find_used(const Range&, uintptr_t begin, size_t bytes);

  static constexpr size_t max_ranges = 64;
  Range ranges_[max_ranges];
  std::atomic<size_t> n_ranges_ = 0;
};

}  // namespace simt
