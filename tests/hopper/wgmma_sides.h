// The stand-in's wgmma for the comparison with CuTe, whose headers and the stand-in's can't be in
// one file.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv::compare {

constexpr uint32_t first_address = 1024;  // of a block's shared memory, in its own address space

// The functions of ptx_wgmma.cuh. swizzle: 0 to 3 for none, 32, 64, 128 bytes.
uint64_t descriptor(uint32_t shared_address, int swizzle, uint32_t stride, uint32_t leading);
uint64_t advance(uint64_t descriptor, uint32_t bytes);

struct Product {
  int columns;  // N
  bool is_half, a_is_mn_major, b_is_mn_major;
  // The block's shared memory holds these bytes.
  const unsigned char* shared;
  size_t bytes;
  int steps;                                   // wgmmas; each adds to the sums of the previous
  const uint64_t* a;                           // [steps] descriptors, or null:
  const uint32_t (*a_registers)[4] = nullptr;  // [steps * 128]
  const uint64_t* b;                           // [steps]
};
// d[128][columns / 2]: the registers of each thread.
void multiply(const Product&, float* d);

}  // namespace bv::compare
