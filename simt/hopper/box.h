// The box of a tensor that a TMA instruction copies: its elements in global memory, and their
// places in shared memory.
#pragma once
#include <cstddef>

#include "simt/hopper/tensor_map.h"

namespace simt {

struct Box {
  TensorMap map;
  int at[5]{};
  unsigned offset[3]{};  // im2col: added to the pixels' coordinates, W first

  // Elements outside the tensor read as zero.
  void load(unsigned char* shared) const;
  // Elements outside the tensor are not stored. `bytes` was copied from the address `shared`, which
  // determines the swizzle. `adds`: adds to the tensor's elements, rounded to their type.
  void store(const unsigned char* bytes, uintptr_t shared, bool adds) const;

 private:
  // Calls row(number, coordinates of its first element) for each row of the box.
  template <class Row>
  void each_row(Row row) const;
  template <class Row>
  void each_pixel(Row row) const;
};

// TMA's reducing stores: to[i] += from[i] for n elements, rounded to their type.
void add_elements(CUtensorMapDataType, void* to, const void* from, size_t n);
// Whether TMA can add elements of this type.
bool can_add(CUtensorMapDataType);

// The address at which a byte of the box is stored. The swizzle XORs the number of the byte's
// 16-byte piece in the span with the address bits from bit 7 on (minus `base`): 1, 2 or 3 bits for
// a span of 32, 64 or 128 bytes. So the pattern begins at a multiple of 8 spans. A span of 0 or 16
// bytes isn't swizzled.
constexpr uintptr_t swizzled(uintptr_t address, unsigned span_bytes, unsigned base = 0) {
  const uintptr_t pieces = span_bytes / 16;  // 0, 1, 2, 4, 8
  return pieces ? address ^ ((((address >> 7) - base) & (pieces - 1)) << 4) : address;
}

}  // namespace simt
