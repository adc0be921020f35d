// An access to memory by one thread.
#pragma once
#include <cstdint>

namespace simt {

enum class AccessKind : uint8_t {
  load,
  store,
  atomic,
  ldmatrix,
  cp_async,
  // The following are not accesses. lines.h counts them, and ends a warp's segment at barriers and
  // waits for copies.
  copy_commit,
  copy_wait,
  numbered_barrier,
  barrier,
  shuffle,
  vote,
  lanes_wait,
  mma
};

inline constexpr uint64_t address_mask = 0xFFFF'FFFF'FFFF;

// `instruction` identifies a request: it has the code address in the lower 48 bits, the kind, and
// the size.
struct Access {
  uint64_t instruction;
  uintptr_t address;

  static Access of(const void* place, AccessKind kind, unsigned bytes, const void* address) {
    return {(reinterpret_cast<uint64_t>(place) & address_mask) | uint64_t(kind) << 48 |
                uint64_t{bytes} << 56,
            reinterpret_cast<uintptr_t>(address)};
  }
  AccessKind kind() const { return kind_of(instruction); }
  unsigned bytes() const { return unsigned(instruction >> 56); }
  static AccessKind kind_of(uint64_t instruction) { return AccessKind(instruction >> 48 & 0xFF); }
};

}  // namespace simt
