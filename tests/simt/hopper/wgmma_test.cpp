// The stand-in's wgmma is exact for every shape and layout, in all orders and deliveries.
#include "tests/simt/hopper/wgmma_test.h"

namespace bv::simt_gpu {
namespace {

// out[64, N] = a[64, depth] * b[N, depth]
template <class T, int N, Major a_major, Major b_major>
void one_tile(float* out, const T* a, const T* b, Swizzle swizzle) {
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  const TileLayout a_tile{a_major, swizzle, 64}, b_tile{b_major, swizzle, N};
  unsigned char* const b_at = memory + a_tile.bytes();
  store_tile(memory, a_tile, a);
  store_tile(b_at, b_tile, b);
  fence_proxy_async();
  __syncthreads();
  float d[N / 2];
  wgmma_fence(d);
  for (int k = 0; k < depth; k += 16)
    wgmma_mma_async<T, a_major, b_major>(d, a_tile.descriptor(memory, k),
                                         b_tile.descriptor(b_at, k), k > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
  store_sums(out, d);
}

template <class T, int N, Major a_major, Major b_major>
void check_tile(Swizzle swizzle) {
  const auto a = integers<T>(64 * depth, 1), b = integers<T>(N * depth, 2);
  std::vector<float> d(64 * N);
  const size_t bytes =
      size_t(TileLayout{a_major, swizzle, 64}.bytes() + TileLayout{b_major, swizzle, N}.bytes());
  run<one_tile<T, N, a_major, b_major>>(1, 128, bytes, d.data(), a.data(), b.data(), swizzle);
  EXPECT_EQ(d, plain_product(a, b, N, depth)) << N << " swizzle " << int(swizzle);
}

template <class T, int... eighths>
void check_shapes(std::integer_sequence<int, eighths...>) {
  (check_tile<T, 8 * (eighths + 1), Major::k, Major::k>(Swizzle::b128), ...);
}

TEST_F(SimtHopper, WgmmaOfEveryShape) {
  check_shapes<__half>(std::make_integer_sequence<int, 32>());
  check_shapes<__nv_bfloat16>(std::integer_sequence<int, 0, 7, 23, 31>());
}

TEST_F(SimtHopper, WgmmaOfEveryLayout) {
  in_each_order_and_delivery([] {
    for (const Swizzle s : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
      check_tile<__half, 96, Major::k, Major::k>(s);
      check_tile<__half, 96, Major::mn, Major::k>(s);
      check_tile<__half, 96, Major::k, Major::mn>(s);
      check_tile<__half, 96, Major::mn, Major::mn>(s);
    }
  });
}

// One wgmma, to test how its sums are rounded: as on Hopper, or to nearest in the order of K.
template <class T>
void one_product(float* out, const T* a, const T* b, float start) {
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  const TileLayout tile{Major::k, Swizzle::b128, 64};
  store_tile(memory, tile, a);
  store_tile(memory + tile.bytes(), tile, b);
  fence_proxy_async();
  __syncthreads();
  float d[32];
  for (float& x : d) x = start;
  wgmma_fence(d);
  wgmma_mma_async<T>(d, tile.descriptor(memory, 0), tile.descriptor(memory + tile.bytes(), 0),
                     true);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
  store_sums(out, d);
}

TEST_F(SimtHopper, WgmmaSumsAsTensorCoresSays) {
  std::vector<__half> a(64 * depth), b(64 * depth);
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t k = i % depth;
    a[i] = from_float<__half>(k == 0 ? 1.0f : 0x1p-13f);
    b[i] = from_float<__half>(k == 0 ? 1.0f : 0x1p-12f);
  }
  std::vector<float> d(64 * 64);
  const auto sum = [&](float start) {
    run<one_product<__half>>(1, 128, 16384, d.data(), a.data(), b.data(), start);
    for (const float x : d) EXPECT_EQ(x, d[0]);
    return d[0];
  };
  EXPECT_EQ(sum(0), 1);  // 15 times, 1 + 2^-25 is rounded to 1
  simt::tensor_cores = {16, 2};
  EXPECT_EQ(sum(0), 1 + 0x1.8p-22f);  // the two extra bits keep 15 * 2^-25, and the rest is cut off
  EXPECT_EQ(sum(-1), 15 * 0x1p-25f);
  simt::tensor_cores = {8, 1};
  EXPECT_EQ(sum(0), 1);
  simt::tensor_cores = {0, 0};
}

// out[64, N] = a * b, A in registers, in fragments with the layout of wgmma's D, as if A were the
// result of an earlier product.
template <class T, int N>
void from_registers(float* out, const T* a, const T* b) {
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  const TileLayout tile{Major::mn, Swizzle::b64, N};
  store_tile(memory, tile, b);
  fence_proxy_async();
  __syncthreads();
  const int t = int(threadIdx.x), row = t / 32 * 16 + t / 4 % 8, column = t % 4 * 2;
  uint32_t fragment[depth / 16][4];
  for (int k = 0; k < depth / 16; ++k)
    for (int i = 0; i < 4; ++i)
      std::memcpy(&fragment[k][i], a + (row + i % 2 * 8) * depth + 16 * k + column + i / 2 * 8, 4);
  float d[N / 2];
  wgmma_fence(d, fragment);
  for (int k = 0; k < depth / 16; ++k)
    wgmma_mma_async<T, Major::mn>(d, fragment[k], tile.descriptor(memory, 16 * k), k > 0);
  wgmma_commit_group();
  wgmma_wait_group<0>(d);
  store_sums(out, d);
}

TEST_F(SimtHopper, WgmmaWithAInRegisters) {
  const auto a = integers<__nv_bfloat16>(64 * depth, 3), b = integers<__nv_bfloat16>(64 * depth, 4);
  in_each_order_and_delivery([&] {
    std::vector<float> d(64 * 64);
    run<from_registers<__nv_bfloat16, 64>>(1, 128, 8192, d.data(), a.data(), b.data());
    EXPECT_EQ(d, plain_product(a, b, 64, depth));
  });
}

// Two warpgroups, each with two accumulators in flight, on tiles that alternate between two stages:
// out[2][2][64, 64] += a[i][64] * b[i][half][64] over the tiles i.
void double_buffered(float* out, const __half* a, const __half* b, int tiles) {
  constexpr TileLayout tile{Major::k, Swizzle::b128, 64};
  auto* const memory = static_cast<unsigned char*>(simt::shared_memory(0));
  const int group = int(threadIdx.x / 128);
  float d[2][32];
  for (int i = 0; i < tiles; ++i) {
    unsigned char* const stage = memory + i % 2 * 3 * tile.bytes();
    store_tile(stage, tile, a + i * 64 * depth);
    for (int half = 0; half < 2; ++half)
      store_tile(stage + (1 + half) * tile.bytes(), tile, b + (2 * i + half) * 64 * depth);
    fence_proxy_async();
    __syncthreads();
    wgmma_fence(d);
    for (int k = 0; k < depth; k += 16)
      for (int half = 0; half < 2; ++half)
        wgmma_mma_async<__half>(d[half], tile.descriptor(stage, k),
                                tile.descriptor(stage + (1 + half) * tile.bytes(), k), i + k > 0);
    wgmma_commit_group();
    wgmma_wait_group<1>();  // the other stage is free
    __syncthreads();
  }
  wgmma_wait_group<0>(d);
  for (int half = 0; half < 2; ++half) store_sums(out + (2 * group + half) * 64 * 64, d[half]);
}

TEST_F(SimtHopper, WgmmaInAPipelineOfTwoStages) {
  constexpr int tiles = 5;
  const auto a = integers<__half>(tiles * 64 * depth, 5),
             b = integers<__half>(2 * tiles * 64 * depth, 6);
  std::vector<float> expected[2]{std::vector<float>(64 * 64), std::vector<float>(64 * 64)};
  for (size_t i = 0; i < tiles; ++i)
    for (size_t half = 0; half < 2; ++half) {
      const auto part = [](const std::vector<__half>& x, size_t n) {
        return std::vector<__half>(&x[n * 64 * depth], &x[(n + 1) * 64 * depth - 1] + 1);
      };
      const auto d = plain_product(part(a, i), part(b, 2 * i + half), 64, depth);
      for (size_t j = 0; j < d.size(); ++j) expected[half][j] += d[j];
    }
  in_each_order_and_delivery([&] {
    std::vector<float> d(4 * 64 * 64);
    run<double_buffered>(1, 256, 6 * 8192, d.data(), a.data(), b.data(), tiles);
    for (size_t i = 0; i < d.size(); ++i) ASSERT_EQ(d[i], expected[i / 4096 % 2][i % 4096]) << i;
  });
}

}  // namespace
}  // namespace bv::simt_gpu
