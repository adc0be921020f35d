#include <array>
#include <cstring>
#include <utility>

#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "simt/device/launch.h"
#include "tests/hopper/wgmma_sides.h"

namespace bv::compare {
namespace {

using namespace simt_gpu;

template <class T, int columns, Major a_major, Major b_major>
void kernel(const Product& p, float* out) {
  auto* const shared = static_cast<unsigned char*>(simt::shared_memory(p.bytes));
  const unsigned t = threadIdx.x;
  if (t == 0) std::memcpy(shared, p.shared, p.bytes);
  fence_proxy_async();
  simt::wait_for_block(simt::Site::current());
  float d[columns / 2];
  uint32_t a[8][4];
  if (p.a_registers)
    for (int i = 0; i < p.steps; ++i) std::memcpy(a[i], p.a_registers[i * 128 + int(t)], 16);
  wgmma_fence(d, a);
  for (int i = 0; i < p.steps; ++i) {
    if (p.a_registers)
      wgmma_mma_async<T, b_major>(d, a[i], p.b[i], i > 0);
    else
      wgmma_mma_async<T, a_major, b_major>(d, p.a[i], p.b[i], i > 0);
  }
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
  std::memcpy(out + t * (columns / 2), d, sizeof d);
}

using Kernel = void (*)(const Product&, float*);

template <class T, int columns>
Kernel of_majors(const Product& p) {
  if (p.a_is_mn_major)
    return p.b_is_mn_major ? kernel<T, columns, Major::mn, Major::mn>
                           : kernel<T, columns, Major::mn, Major::k>;
  return p.b_is_mn_major ? kernel<T, columns, Major::k, Major::mn>
                         : kernel<T, columns, Major::k, Major::k>;
}

template <int... i>
Kernel of_shape(const Product& p, std::integer_sequence<int, i...>) {
  Kernel found = nullptr;
  ((p.columns == 8 * (i + 1) ? void(found = p.is_half ? of_majors<__half, 8 * (i + 1)>(p)
                                                      : of_majors<__nv_bfloat16, 8 * (i + 1)>(p))
                             : void()),
   ...);
  return found;
}

}  // namespace

uint64_t descriptor(uint32_t shared_address, int swizzle, uint32_t stride, uint32_t leading) {
  return wgmma_descriptor(shared_address, Swizzle(swizzle), stride, leading);
}
uint64_t advance(uint64_t descriptor, uint32_t bytes) { return wgmma_advance(descriptor, bytes); }

void multiply(const Product& p, float* d) {
  const Kernel k = of_shape(p, std::make_integer_sequence<int, 32>());
  simt::run({.name = "wgmma",
             .grid = 1,
             .block = 128,
             .shared_bytes = p.bytes,
             .body = [&] { k(p, d); },
             .function = nullptr});
}

}  // namespace bv::compare
