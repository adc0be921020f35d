// Tensor maps for TMA (ptx_tma.cuh), made on the host by the driver. A map holds the tensor's
// address, so it is made once the address is known, and is passed to the kernel as
// `const __grid_constant__ CUtensorMap`.
#pragma once
#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace bv::BAREVISION_GPU {

enum class ElementType { f16, bf16, f32 };
enum class Swizzle { none, b32, b64, b128 };

// Why TMA can't copy a tensor, so that another kernel must.
enum class NoMap {
  fits,
  no_tma,         // the GPU is older than sm_90
  rank,           // not 1 to 5; im2col: 3 to 5
  address,        // null or not a multiple of 16
  size,           // a dimension below 1 or above 2^32
  stride,         // not a multiple of 16 bytes, or 2^40 and more
  step,           // element strides outside 1 to 8
  box,            // tiled: outside 1 to 256; im2col: channels to 256, pixels to 1024
  row_bytes,      // the box's innermost dimension: not a multiple of 16 bytes
  swizzle_bytes,  // ... or other than the swizzle's span
  corners,        // im2col: beyond the range of this rank, or an empty box
};
const char* str(NoMap);

// Dimensions are numbered from the innermost, whose elements are contiguous; the others have
// strides in bytes, stride[i] between elements of dimension i + 1.
struct TiledTensor {
  const void* address;
  ElementType type;
  unsigned rank;
  std::array<uint64_t, 5> size;
  std::array<uint64_t, 4> stride;
  std::array<unsigned, 5> box;                     // elements that a copy spans
  std::array<unsigned, 5> step = {1, 1, 1, 1, 1};  // between copied elements, except innermost
  Swizzle swizzle = Swizzle::none;
};

// A convolution's input, NWC, NHWC or NDHWC: dimensions C, W, H, D, N, without D or H if absent. A
// load copies `channels` channels of each of `pixels` pixels, which advance by `step` along W, then
// H, D and N, in the box from `lower` to the image's end + `upper` (both W first). For a forward
// convolution, lower = -padding, upper = padding - (filter - 1) * dilation, step = its stride.
struct Im2colTensor {
  const void* address;
  ElementType type;
  unsigned rank;
  std::array<uint64_t, 5> size;
  std::array<uint64_t, 4> stride;
  std::array<int, 3> lower, upper;
  unsigned channels, pixels;
  std::array<unsigned, 3> step = {1, 1, 1};
  Swizzle swizzle = Swizzle::none;
};

struct MadeMap {
  NoMap why = NoMap::fits;
  CUtensorMap map{};  // if it fits
};
bool driver_makes_maps();  // whether it has cuTensorMapEncodeTiled
// Throw std::runtime_error only if the driver rejects a tensor that fits, or lacks the function.
MadeMap make_map(const TiledTensor&);
MadeMap make_map(const Im2colTensor&);

// The bytes that a load delivers, for mbarrier_expect_tx.
unsigned box_bytes(const TiledTensor&);
unsigned box_bytes(const Im2colTensor&);

}  // namespace bv::BAREVISION_GPU
