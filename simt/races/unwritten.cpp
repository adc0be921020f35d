#include "simt/races/unwritten.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace simt {
namespace {

#ifdef SIMT_UNWRITTEN
constexpr bool kept = true;
#else
constexpr bool kept = false;
#endif

// A struct with padding consists of parts as large as its alignment, and each of them begins with a
// member. This is the largest alignment that a type of this size, with padding, may have.
size_t part_of(size_t bytes) {
  const size_t alignment = std::has_single_bit(bytes) ? bytes / 2 : bytes & -bytes;
  return std::clamp<size_t>(alignment, 1, 16);
}

// Calls whole(bits) for each byte of bits and edge(bits, mask) for the parts at both ends.
template <class Whole, class Edge>
void each(unsigned char* bits, uintptr_t begin, uintptr_t end, Whole whole, Edge edge) {
  const uintptr_t first = begin / 8, last = end / 8;
  const auto below = [](uintptr_t a) { return static_cast<unsigned char>((1u << a % 8) - 1); };
  if (first == last) return edge(bits, static_cast<unsigned char>(below(end) & ~below(begin)));
  edge(bits, static_cast<unsigned char>(~below(begin)));
  whole(bits + 1, last - first - 1);
  if (end % 8) edge(bits + (last - first), below(end));
}

}  // namespace

Unwritten& Unwritten::instance() {
  static Unwritten& one = *new Unwritten;  // never destroyed: streams may run during exit
  return one;
}

void Unwritten::add_range(uintptr_t begin, uintptr_t end) {
  if (!kept || n_ranges_ == max_ranges) return;
  void* const bits = mmap(nullptr, (end - begin) / 8 + sizeof(uint32_t), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bits == MAP_FAILED) return;  // address space is limited: then nothing is reported
  ranges_[n_ranges_] = {begin, end, static_cast<unsigned char*>(bits)};
  ++n_ranges_;
}

void Unwritten::allocated(uintptr_t begin, size_t bytes) {
  if (const Range* r = range_of(begin)) set(*r, begin, bytes);
}

void Unwritten::released(uintptr_t begin, size_t bytes) {
  if (const Range* r = range_of(begin)) clear(*r, begin, bytes);
}

// Another thread may change other bits of a byte: the host and a kernel may both write.
void Unwritten::set(const Range& r, uintptr_t begin, size_t bytes) {
  each(
      byte_of(r, begin), begin, begin + bytes,
      [](unsigned char* at, size_t n) { std::memset(at, 0xFF, n); },
      [](unsigned char* at, unsigned char mask) { __atomic_fetch_or(at, mask, __ATOMIC_RELAXED); });
}

void Unwritten::clear(const Range& r, uintptr_t begin, size_t bytes) {
  each(
      byte_of(r, begin), begin, begin + bytes,
      [](unsigned char* at, size_t n) { std::memset(at, 0, n); },
      [](unsigned char* at, unsigned char mask) {
        __atomic_fetch_and(at, static_cast<unsigned char>(~mask), __ATOMIC_RELAXED);
      });
}

bool Unwritten::any_of_many(const Range& r, uintptr_t begin, size_t bytes) {
  bool found = false;
  each(
      byte_of(r, begin), begin, begin + bytes,
      [&](unsigned char* at, size_t n) {
        found |= std::any_of(at, at + n, [](unsigned char b) { return b != 0; });
      },
      [&](unsigned char* at, unsigned char mask) { found |= (*at & mask) != 0; });
  return found;
}

bool Unwritten::is_unwritten(const Range& r, uintptr_t address) {
  if (!is_set(r, address)) return false;
  if (*reinterpret_cast<const unsigned char*>(address) == fresh) return true;
  clear(r, address, 1);
  return false;
}

uintptr_t Unwritten::find_used(const Range& r, uintptr_t begin, size_t bytes) {
  const size_t part = part_of(bytes);
  for (size_t i = 0; i < bytes; i += part)
    if (is_unwritten(r, begin + i)) return begin + i;
  return 0;
}

void Unwritten::copied(void* to, const void* from, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
  const Range *r = range_of(begin), *s = range_of(source);
  if (!r) return;
  clear(*r, begin, bytes);
  if (!s || !any_of_many(*s, source, bytes)) return;
  for (size_t i = 0; i < bytes; ++i)
    if (is_unwritten(*s, source + i)) set(*r, begin + i, 1);
}

}  // namespace simt
