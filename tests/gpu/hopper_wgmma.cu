// Kernels with wgmma of every shape in a loop over tiles, so that ptxas compiles each for every
// architecture; if ptxas serialises the wgmmas on sm_90a, the build fails. The kernels are never
// launched.
#include <array>
#include <utility>

#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "kernels/cuda/launch.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int stages = 3, depth = 64;

struct Tile {
  alignas(1024) uint16_t at[256 * depth];
};
struct Shared {
  Tile a[stages], b[stages];
};

// One group stays in flight while the next is issued.
template <class T, Major a_major, Major b_major, size_t n>
__device__ void multiply(float (&d)[n], Shared& s, int tiles) {
  constexpr uint32_t row = 128, stride = 8 * row, leading = depth * row;
  constexpr uint32_t a_step = a_major == Major::k ? 32 : 16 * row;
  constexpr uint32_t b_step = b_major == Major::k ? 32 : 16 * row;
  for (int i = 0; i < tiles; ++i) {
    const uint64_t a = wgmma_descriptor(&s.a[i % stages], Swizzle::b128, stride, leading);
    const uint64_t b = wgmma_descriptor(&s.b[i % stages], Swizzle::b128, stride, leading);
    wgmma_fence(d);
#pragma unroll
    for (uint32_t k = 0; k < depth / 16; ++k)
      wgmma_mma_async<T, a_major, b_major>(d, wgmma_advance(a, k * a_step),
                                           wgmma_advance(b, k * b_step), i + int(k) > 0);
    wgmma_commit_group();
    wgmma_wait_group<1>();
  }
  wgmma_wait_group<0>(d);
}

template <class T, Major b_major, size_t n>
__device__ void multiply(float (&d)[n], uint32_t (&a)[depth / 16][4], Shared& s) {
  const uint64_t b = wgmma_descriptor(&s.b[0], Swizzle::b128, 1024, 8192);
  wgmma_fence(d, a);
#pragma unroll
  for (uint32_t k = 0; k < depth / 16; ++k)
    wgmma_mma_async<T, b_major>(d, a[k], wgmma_advance(b, k * (b_major == Major::k ? 32 : 2048)),
                                k > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
}

template <size_t n>
__device__ void store(float* out, const float (&d)[n]) {
#pragma unroll
  for (size_t i = 0; i < n; ++i) out[i * blockDim.x + threadIdx.x] = d[i];
}

}  // namespace

template <class T, int columns, Major a_major, Major b_major>
__global__ void __launch_bounds__(128) hopper_wgmma(float* out, int tiles) {
  auto& s = shared<Shared>();
  float d[columns / 2];
  multiply<T, a_major, b_major>(d, s, tiles);
  store(out, d);
}

// Uses D as A of a second product, as attention does.
template <class T, int columns, Major b_major>
__global__ void __launch_bounds__(128) hopper_wgmma_twice(float* out, int tiles) {
  auto& s = shared<Shared>();
  float first[32], d[columns / 2];
  multiply<T, Major::k, Major::k>(first, s, tiles);
  uint32_t a[depth / 16][4];
#pragma unroll
  for (int k = 0; k < depth / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[k][i] = cvt_rn_x2<T>(first[8 * k + 2 * i], first[8 * k + 2 * i + 1]);
  multiply<T, b_major>(d, a, s);
  store(out, d);
}

// N / 8 - 1 for each N.
#ifdef BAREVISION_EVERY_SHAPE
using Eighths = std::make_integer_sequence<int, 32>;
#else
using Eighths = std::integer_sequence<int, 7, 23>;
#endif

template <class T, int... eighths>
std::array<void (*)(float*, int), 2 * sizeof...(eighths)> each_shape(
    std::integer_sequence<int, eighths...>) {
  return {hopper_wgmma<T, 8 * (eighths + 1), Major::k, Major::mn>...,
          hopper_wgmma_twice<T, 8 * (eighths + 1), Major::mn>...};
}

extern const auto hopper_wgmma_f16 = each_shape<__half>(Eighths());
extern const auto hopper_wgmma_bf16 = each_shape<__nv_bfloat16>(std::integer_sequence<int, 31>());
extern const std::array hopper_wgmma_majors{hopper_wgmma<__half, 192, Major::mn, Major::k>,
                                            hopper_wgmma<__half, 256, Major::mn, Major::mn>,
                                            hopper_wgmma_twice<__half, 64, Major::k>};

}  // namespace bv::BAREVISION_GPU
