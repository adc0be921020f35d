#include "simt/counters/sectors.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

namespace simt {
namespace {

// Two bits, read and written, for each sector of the 1 TiB of device addresses (host/memory.cpp):
// 8 GiB, of which only pages with set bits are allocated.
struct Words {  // of 64 sectors
  uint64_t read, written;
};
constexpr uintptr_t sectors = (uintptr_t{1} << 40) / 32, count = sectors / 64;

Words* all_words() {
  static Words* const words = [] {
    void* p = mmap(nullptr, count * sizeof(Words), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    return static_cast<Words*>(p);
  }();
  return words;
}

std::atomic<uintptr_t> lowest = count, highest = 0;  // words with a set bit

void lower(std::atomic<uintptr_t>& to, uintptr_t x) {
  for (uintptr_t old = to; x < old && !to.compare_exchange_weak(old, x);) {
  }
}
void raise(std::atomic<uintptr_t>& to, uintptr_t x) {
  for (uintptr_t old = to; x > old && !to.compare_exchange_weak(old, x);) {
  }
}

}  // namespace

void touch_sector(uintptr_t address_by_32, bool written) {
  const uintptr_t sector = address_by_32 % sectors, at = sector / 64;
  Words& words = all_words()[at];
  const std::atomic_ref bits(written ? words.written : words.read);
  const uint64_t bit = uint64_t{1} << sector % 64;
  if (bits.load(std::memory_order_relaxed) & bit) return;
  bits.fetch_or(bit, std::memory_order_relaxed);
  lower(lowest, at);
  raise(highest, at);
}

TouchedSectors take_touched_sectors() {
  TouchedSectors n{};
  const uintptr_t begin = lowest.exchange(count), end = highest.exchange(0) + 1;
  if (begin >= end) return n;
  for (Words* w = all_words() + begin; w < all_words() + end; ++w) {
    n.read += unsigned(std::popcount(w->read)), n.written += unsigned(std::popcount(w->written));
    *w = {};
  }
  // Addresses are not reused, so release their pages.
  constexpr uintptr_t page = 4096 / sizeof(Words);
  const uintptr_t from = (begin + page - 1) / page * page, to = end / page * page;
  if (to > from + 256 * page)
    madvise(all_words() + from, (to - from) * sizeof(Words), MADV_DONTNEED);
  return n;
}

}  // namespace simt
