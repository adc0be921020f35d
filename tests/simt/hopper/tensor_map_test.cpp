// The limits within which the driver's stand-in and make_map accept a map, each at its boundary.
#include <gtest/gtest.h>

#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

alignas(256) float memory[1024];

struct Tiled {
  CUtensorMap* map = nullptr;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  unsigned rank = 2;
  char* address = reinterpret_cast<char*>(memory);
  cuuint64_t size[5] = {32, 8, 4, 2, 2}, stride[5] = {128, 1024, 4096, 8192, 8192};
  cuuint32_t box[5] = {32, 8, 1, 1, 1}, step[5] = {1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};
template <class Change>
bool takes_tiles(Change change) {
  alignas(64) CUtensorMap map[2];
  Tiled t{.map = map};
  change(t);
  return cuTensorMapEncodeTiled(t.map, t.type, t.rank, t.address, t.size, t.stride, t.box, t.step,
                                t.interleave, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                t.fill) == CUDA_SUCCESS;
}

class SimtTensorMap : public SimtHopper {};

TEST_F(SimtTensorMap, TilesAreRefusedBeyondEachLimit) {
  using T = Tiled;
  EXPECT_TRUE(takes_tiles([](T&) {}));
  EXPECT_FALSE(takes_tiles([](T& t) { t.map = nullptr; }));
  EXPECT_FALSE(takes_tiles(
      [](T& t) { t.map = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(t.map) + 32); }));
  EXPECT_TRUE(takes_tiles([](T& t) { t.address += 16; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.address += 8; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.address = nullptr; }));
  for (unsigned rank = 0; rank <= 6; ++rank)
    EXPECT_EQ(takes_tiles([=](T& t) { t.rank = rank; }), rank >= 1 && rank <= 5) << rank;
  EXPECT_TRUE(takes_tiles([](T& t) { t.stride[0] = 144; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.stride[0] = 136; }));
  EXPECT_TRUE(takes_tiles([](T& t) { t.stride[0] = (uint64_t{1} << 40) - 16; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.stride[0] = uint64_t{1} << 40; }));
  EXPECT_TRUE(takes_tiles([](T& t) { t.size[1] = uint64_t{1} << 32; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.size[1] = (uint64_t{1} << 32) + 1; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.size[1] = 0; }));
  EXPECT_TRUE(takes_tiles([](T& t) { t.box[1] = 256; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.box[1] = 257; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.box[1] = 0; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.box[0] = 30; }));  // 120 bytes
  EXPECT_TRUE(takes_tiles([](T& t) { t.step[1] = 8; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.step[1] = 9; }));
  EXPECT_FALSE(takes_tiles([](T& t) { t.step[1] = 0; }));
  for (const auto& [swizzle, most] :
       {std::pair(CU_TENSOR_MAP_SWIZZLE_32B, 8u), std::pair(CU_TENSOR_MAP_SWIZZLE_64B, 16u),
        std::pair(CU_TENSOR_MAP_SWIZZLE_128B, 32u)}) {
    EXPECT_TRUE(takes_tiles([&](T& t) { t.swizzle = swizzle, t.box[0] = most; }));
    EXPECT_FALSE(takes_tiles([&](T& t) { t.swizzle = swizzle, t.box[0] = most + 4; }));
  }
  EXPECT_FALSE(takes_tiles([](T& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; }));
  EXPECT_FALSE(
      takes_tiles([](T& t) { t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; }));
  EXPECT_FALSE(
      takes_tiles([](T& t) { t.type = static_cast<CUtensorMapDataType>(13); }));  // sm_100's
}

Im2colTensor pixels() {
  return {.address = memory,
          .type = ElementType::bf16,
          .rank = 4,
          .size = {64, 7, 7, 2},
          .stride = {128, 896, 6272},
          .lower = {-1, -1},
          .upper = {-1, -1},
          .channels = 64,
          .pixels = 128,
          .swizzle = Swizzle::b128};
}
template <class Change>
NoMap why_no_pixels(Change change) {
  Im2colTensor t = pixels();
  change(t);
  return make_map(t).why;  // throws if the driver refuses a map that should fit
}
TEST_F(SimtTensorMap, PixelsSayWhyTheyDontFit) {
  using T = Im2colTensor;
  EXPECT_EQ(why_no_pixels([](T&) {}), NoMap::fits);
  EXPECT_EQ(why_no_pixels([](T& t) { t.rank = 2; }), NoMap::rank);
  EXPECT_EQ(why_no_pixels([](T& t) { t.address = memory + 1; }), NoMap::address);
  EXPECT_EQ(why_no_pixels([](T& t) { t.stride[0] = 120; }), NoMap::stride);
  EXPECT_EQ(why_no_pixels([](T& t) { t.size[0] = 0; }), NoMap::size);
  EXPECT_EQ(why_no_pixels([](T& t) { t.step[1] = 9; }), NoMap::step);
  EXPECT_EQ(why_no_pixels([](T& t) { t.pixels = 1024; }), NoMap::fits);
  EXPECT_EQ(why_no_pixels([](T& t) { t.pixels = 1025; }), NoMap::box);
  EXPECT_EQ(why_no_pixels([](T& t) { t.channels = 256, t.swizzle = Swizzle::none; }), NoMap::fits);
  EXPECT_EQ(why_no_pixels([](T& t) { t.channels = 264, t.swizzle = Swizzle::none; }), NoMap::box);
  EXPECT_EQ(why_no_pixels([](T& t) { t.channels = 60; }), NoMap::row_bytes);
  EXPECT_EQ(why_no_pixels([](T& t) { t.channels = 32; }), NoMap::swizzle_bytes);
  EXPECT_EQ(why_no_pixels([](T& t) { t.lower[0] = -128; }), NoMap::fits);
  EXPECT_EQ(why_no_pixels([](T& t) { t.lower[0] = -129; }), NoMap::corners);
  EXPECT_EQ(why_no_pixels([](T& t) { t.upper[1] = 127; }), NoMap::fits);
  EXPECT_EQ(why_no_pixels([](T& t) { t.upper[1] = 128; }), NoMap::corners);
  EXPECT_EQ(why_no_pixels([](T& t) { t.upper[1] = -8; }), NoMap::corners);  // no pixel is left
  setenv("SIMT_ARCH", "sm_80", 1);
  EXPECT_EQ(why_no_pixels([](T&) {}), NoMap::no_tma);
}

TEST_F(SimtTensorMap, AMapKeepsWhatItWasMadeOf) {
  const MadeMap made = make_map(pixels());
  simt::TensorMap m;
  ASSERT_TRUE(simt::unpack(made.map, &m));
  EXPECT_TRUE(m.im2col);
  EXPECT_EQ(m.rank, 4u);
  EXPECT_EQ(m.address, reinterpret_cast<unsigned char*>(memory));
  EXPECT_EQ(m.swizzle_bytes, 128u);
  EXPECT_EQ(m.lower[0], -1);
  EXPECT_EQ(m.upper[1], -1);
  EXPECT_EQ(m.box_bytes(), box_bytes(pixels()));
  EXPECT_FALSE(simt::unpack(CUtensorMap{}, &m));
}

// A kernel's arguments must not point to host memory; no word of a map may look as if it did.
TEST_F(SimtTensorMap, AMapIsAnArgumentLikeOthers) {
  void* device = nullptr;
  ok(cudaMalloc(&device, 4096));
  Im2colTensor t = pixels();
  t.address = device;
  EXPECT_EQ(simt::check_argument(make_map(t).map), cudaSuccess);
  ok(cudaFree(device));
}

}  // namespace
}  // namespace bv::simt_gpu
