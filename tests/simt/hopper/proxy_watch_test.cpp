// Missing fences in a block that has run for a long time, so that its shared memory is no longer
// compared as a whole at each switch of threads (ProxyState).
#include <gtest/gtest.h>

#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

struct Shared {
  alignas(1024) float box[8][32];
  char rest[40 << 10];
};

float& mine(Shared& s) { return s.box[threadIdx.x / 32][threadIdx.x % 32]; }

void store_box(const CUtensorMap& to, Shared& s) {
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box, {0, 0});
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
  __syncthreads();
}

// During the barriers, comparing all memory at each switch ends. Then all threads store once, and
// from then on the box is compared at each switch.
Shared& in_a_long_block(const CUtensorMap& to) {
  auto& s = shared<Shared>();
  fence_proxy_async();
  for (int i = 0; i < 10; ++i) __syncthreads();
  mine(s) = 1;
  fence_proxy_async();
  store_box(to, s);
  return s;
}

void fences_all(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x % 32 == 17 || i == 1) mine(s) = 2.0f + float(i);
    fence_proxy_async();
    store_box(to, s);
  }
}
void one_lane_fences(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x == 49) {
      mine(s) = 2.0f + float(i);
      fence_proxy_async();
    }
    store_box(to, s);
  }
}
void fence_of_one_lane_planted_for_all(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  __syncwarp();
  mine(s) = 2;
  __syncwarp();
  if (threadIdx.x % 32 == 0) fence_proxy_async();
  store_box(to, s);
}
void one_lane_planted_without_a_fence(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  mine(s) = 2;
  if (threadIdx.x != 33) fence_proxy_async();
  store_box(to, s);
}
void store_of_one_lane_planted_without_a_fence(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  if (threadIdx.x == 49) mine(s) = 2;
  store_box(to, s);
}
void store_of_one_lane_planted_after_the_fence(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  fence_proxy_async();
  if (threadIdx.x == 49) mine(s) = 2;
  store_box(to, s);
}
// A thread's last store, over bytes that TMA still reads for the block's last thread.
void last_store_planted_over_what_is_read(const CUtensorMap to) {
  Shared& s = in_a_long_block(to);
  if (threadIdx.x == 255) {
    cp_async_bulk_tensor_store(to, s.rest, {0, 0});
    cp_async_bulk_commit_group();
  }
  __syncthreads();
  if (threadIdx.x == 255) cp_async_bulk_wait_group_read<0>();
  if (threadIdx.x == 0) s.rest[100] = 1;
}

class SimtProxyWatch : public SimtHopper {
 protected:
  template <auto kernel>
  std::string error() {
    const Aligned<float> out;
    return error_of<kernel>(1, 256, sizeof(Shared),
                            map_of(out.at, ElementType::f32, {32, 8}, {32, 8}));
  }
};

TEST_F(SimtProxyWatch, FencesOfALongBlockAreSeen) {
  in_each_order([&] {
    EXPECT_EQ(error<fences_all>(), "no error");
    EXPECT_EQ(error<one_lane_fences>(), "no error");
  });
}

TEST_F(SimtProxyWatch, MissingFencesOfALongBlockAreNamed) {
  const std::string missing = "has written without fence.proxy.async since, at ";
  in_each_order([&] {
    EXPECT_TRUE(says(error<one_lane_planted_without_a_fence>(), {"thread (33,0,0) " + missing}));
    if (simt::order != Order::random) {
      EXPECT_TRUE(says(error<fence_of_one_lane_planted_for_all>(), {missing}));
    }
    EXPECT_TRUE(says(error<store_of_one_lane_planted_without_a_fence>(), {missing}));
    EXPECT_TRUE(says(error<store_of_one_lane_planted_after_the_fence>(), {missing}));
  });
}

TEST_F(SimtProxyWatch, AStoreBeforeAThreadReturnsEndsTheBlockWithWords) {
  EXPECT_TRUE(says(error<last_store_planted_over_what_is_read>(),
                   {" of warp 0 ", "writes ", "may still read"}));
}

}  // namespace
}  // namespace bv::simt_gpu
