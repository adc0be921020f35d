#include "kernels/cpu/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace bv {
namespace {

constexpr size_t page = 4096;
constexpr size_t huge_page = 2 << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Maps too much and unmaps both ends, leaving an aligned middle.
void* map_aligned(size_t bytes, size_t alignment) {
  const size_t mapped = bytes + alignment;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    throw std::runtime_error("the system has no " + std::to_string(bytes >> 20) +
                             " MiB of memory left");
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, alignment);
  if (aligned > start) munmap(raw, aligned - start);
  const size_t tail = start + mapped - (aligned + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

PageAllocator::~PageAllocator() {
  for (const auto& [address, bytes] : sizes_) munmap(address, bytes);
}

void* PageAllocator::allocate(size_t bytes) {
  const bool large = bytes >= huge_page;
  if (bytes > SIZE_MAX / 2) throw std::runtime_error("too large to allocate");
  const size_t whole = round_up(bytes ? bytes : 1, large ? huge_page : page);
  void* address = map_aligned(whole, large ? huge_page : page);
  if (large) madvise(address, whole, MADV_HUGEPAGE);  // if it fails, only speed is lost
  std::lock_guard lock(mutex_);
  sizes_.emplace(address, whole);
  return address;
}

void PageAllocator::release(void* address) {
  if (!address) return;
  std::lock_guard lock(mutex_);
  const auto found = sizes_.find(address);
  if (found == sizes_.end())
    throw std::invalid_argument("release: this memory was not allocated here");
  munmap(found->first, found->second);
  sizes_.erase(found);
}

}  // namespace bv
