// Tensor maps, which describe a tensor and a box of it to TMA: the maps that the driver's functions
// (simt/include/cuda.h) accept, and the stand-in's encoding. A map is a kernel's argument, so each
// word except the address stays below all addresses of host memory (check_argument).
#pragma once
#include <cstdint>
#include <string>

#include "simt/include/cuda.h"

namespace simt {

// A tensor's dimensions are numbered from the innermost, whose elements are contiguous.
struct TensorMap {
  bool im2col = false;
  CUtensorMapDataType type{};
  unsigned rank = 0, element_bytes = 0;
  unsigned swizzle_bytes = 0;  // the span of its pattern: 0, 32, 64, 128
  unsigned char* address = nullptr;
  uint64_t size[5]{};          // in elements
  uint64_t stride[5]{};        // in bytes; the first is element_bytes
  unsigned step[5]{};          // from one element of the box to the next; the first is 1
  unsigned box[5]{};           // tiled: elements that it spans
  int lower[3]{}, upper[3]{};  // im2col: the corners of the pixels' box, W first
  unsigned channels = 0, pixels = 0;

  unsigned tiled_size(unsigned dimension) const {  // of the box, in elements that are loaded
    return (box[dimension] + step[dimension] - 1) / step[dimension];
  }
  unsigned row_bytes() const { return (im2col ? channels : box[0]) * element_bytes; }
  unsigned rows() const;
  unsigned box_bytes() const { return rows() * row_bytes(); }
};

// Empty, or why the driver would refuse such a map.
std::string why_no_map(const TensorMap&, CUtensorMapInterleave, CUtensorMapFloatOOBfill);
CUtensorMap packed(const TensorMap&);
// False: these bytes are not a map.
bool unpack(const CUtensorMap&, TensorMap*);
unsigned bytes_of(CUtensorMapDataType);  // 0: no such type

}  // namespace simt
