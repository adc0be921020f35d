#include <cuda.h>

#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "simt/device/launch.h"
#include "simt/hopper/box.h"
#include "tests/hopper/tma_sides.h"

namespace bv::compare {
namespace {

template <class E>
E as(int value) {
  return static_cast<E>(value);
}

simt::Box box_of(const void* map, const int* at, const unsigned* offsets) {
  simt::Box box;
  if (!simt::unpack(*static_cast<const CUtensorMap*>(map), &box.map)) __builtin_trap();
  std::copy(at, at + box.map.rank, box.at);
  if (offsets) std::copy(offsets, offsets + box.map.rank - 2, box.offset);
  return box;
}

}  // namespace

int encode_tiled(void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
                 const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                 int interleave, int swizzle, int promotion, int fill) {
  return cuTensorMapEncodeTiled(
      static_cast<CUtensorMap*>(map), as<CUtensorMapDataType>(type), rank, address, sizes, strides,
      box, steps, as<CUtensorMapInterleave>(interleave), as<CUtensorMapSwizzle>(swizzle),
      as<CUtensorMapL2promotion>(promotion), as<CUtensorMapFloatOOBfill>(fill));
}
int encode_im2col(void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
                  const uint64_t* strides, const int* lower, const int* upper, uint32_t channels,
                  uint32_t pixels, const uint32_t* steps, int interleave, int swizzle,
                  int promotion, int fill) {
  return cuTensorMapEncodeIm2col(
      static_cast<CUtensorMap*>(map), as<CUtensorMapDataType>(type), rank, address, sizes, strides,
      lower, upper, channels, pixels, steps, as<CUtensorMapInterleave>(interleave),
      as<CUtensorMapSwizzle>(swizzle), as<CUtensorMapL2promotion>(promotion),
      as<CUtensorMapFloatOOBfill>(fill));
}

void load(unsigned char* shared, const void* map, const int* at, const unsigned* offsets) {
  box_of(map, at, offsets).load(shared);
}
void store(const void* map, const unsigned char* shared, const int* at) {
  box_of(map, at, nullptr).store(shared, reinterpret_cast<uintptr_t>(shared), false);
}
uintptr_t swizzled(uintptr_t address, unsigned span_bytes) {
  return simt::swizzled(address, span_bytes);
}

void stmatrix(bool transposed, const uint32_t (*registers)[4], uint16_t* const* rows) {
  const uint16_t* const base = rows[0];
  simt::run({.name = "stmatrix", .grid = 1, .block = 32, .shared_bytes = 8192, .body = [=] {
               auto* const box = static_cast<uint16_t*>(simt::shared_memory(8192));
               const unsigned lane = threadIdx.x;
               uint32_t r[4];
               for (int m = 0; m < 4; ++m) r[m] = registers[lane][m];
               uint16_t* const row = box + (rows[lane] - base);
               transposed ? simt_gpu::stmatrix_x4_trans(row, r) : simt_gpu::stmatrix_x4(row, r);
               for (int i = 0; i < 8; ++i) rows[lane][i] = row[i];
             }});
}

}  // namespace bv::compare
