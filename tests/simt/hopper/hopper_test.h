// Shared by the tests of Hopper's instructions on the stand-in.
#pragma once
#include <cstdlib>
#include <numeric>
#include <vector>

#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#include "simt/device/control.h"
#include "tests/simt/simt_device.h"

namespace bv::simt_gpu {

using simt::Delivery;

class SimtHopper : public testing::Test {
 protected:
  void SetUp() override { setenv("SIMT_ARCH", "sm_90", 1); }
  void TearDown() override {
    simt::order = Order::forward;
    simt::delivery = Delivery::as_order;
    simt::seed = 1;
    unsetenv("SIMT_ARCH");
  }
};

// Runs `body` in all orders, with TMA copies as the order specifies, late, early and at random.
template <class Body>
void in_each_order_and_delivery(Body body) {
  for (const Delivery d : {Delivery::as_order, Delivery::late, Delivery::early, Delivery::random}) {
    simt::delivery = d;
    in_each_order(body);
  }
  simt::delivery = Delivery::as_order;
}

// A map of `data` as a tensor without gaps, the innermost size first.
template <class T>
CUtensorMap map_of(const T* data, ElementType type, std::vector<unsigned> size,
                   std::vector<unsigned> box, Swizzle swizzle = Swizzle::none,
                   std::vector<unsigned> step = {}) {
  TiledTensor t{.address = data, .type = type, .rank = unsigned(size.size()), .swizzle = swizzle};
  uint64_t stride = sizeof(T);
  for (unsigned i = 0; i < t.rank; ++i) {
    t.size[i] = size[i];
    t.box[i] = box[i];
    if (!step.empty()) t.step[i] = step[i];
    stride *= size[i];
    if (i + 1 < t.rank) t.stride[i] = stride;
  }
  const MadeMap made = make_map(t);
  EXPECT_EQ(made.why, NoMap::fits) << str(made.why);
  return made.map;
}

// Aligned like memory from cudaMalloc.
template <class T>
struct alignas(256) Aligned {
  T at[8192];
  Aligned() { std::iota(at, at + 8192, T(1)); }
};

}  // namespace bv::simt_gpu
