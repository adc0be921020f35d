// The stand-in's TMA for the comparison with CuTe, whose headers and the stand-in's can't be in one
// file.
#pragma once
#include <cstdint>

namespace bv::compare {

// The driver functions; 0 is success. A map has 128 bytes, aligned to 64.
int encode_tiled(void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
                 const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                 int interleave, int swizzle, int promotion, int fill);
int encode_im2col(void* map, int type, unsigned rank, void* address, const uint64_t* sizes,
                  const uint64_t* strides, const int* lower, const int* upper, uint32_t channels,
                  uint32_t pixels, const uint32_t* steps, int interleave, int swizzle,
                  int promotion, int fill);
// `shared` is aligned to 128 bytes, to 1024 with a swizzle. offsets: null for tiles.
void load(unsigned char* shared, const void* map, const int* at, const unsigned* offsets);
void store(const void* map, const unsigned char* shared, const int* at);
uintptr_t swizzled(uintptr_t address, unsigned span_bytes);
// A warp's stmatrix of four matrices: registers[lane][4]; rows[lane]: the row that lane addresses.
void stmatrix(bool transposed, const uint32_t (*registers)[4], uint16_t* const* rows);

}  // namespace bv::compare
