// A ring of stages between a producer warp, which loads by TMA, and consumer warps, as Hopper's
// kernels have it: exact and silent in every order; and each of its mistakes, planted.
#include <gtest/gtest.h>

#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

constexpr int stages = 3, columns = 32, rows = 8, consumers = 2, k_tiles = 7, tiles = 2;
constexpr unsigned stage_bytes = columns * rows * sizeof(float);

enum class Bug {
  none,
  no_wait_full,         // consumers don't wait for the data
  no_wait_empty,        // the producer doesn't wait for the consumers
  wrong_parity,         // the producer begins with parity 0
  parity_not_carried,   // each tile begins with parity 0 again
  one_consumer_only,    // only the first consumer arrives
  too_many_arrivals,    // each lane arrives
  too_few_bytes,        // expected
  too_many_bytes,
  no_fence_init,
  no_last_wait,         // the block ends with a load in flight
};

struct Shared {
  alignas(128) float stage[stages][rows][columns];
  alignas(128) float out[rows][columns];
  uint64_t full[stages], empty[stages];
};

// out[tile] = sum over the tile's k_tiles boxes of the input.
template <Bug bug>
void sum_boxes(const CUtensorMap in, const CUtensorMap out) {
  auto& s = shared<Shared>();
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      mbarrier_init(&s.full[i], 1);
      mbarrier_init(&s.empty[i], consumers);
    }
    if (bug != Bug::no_fence_init) fence_mbarrier_init();
  }
  __syncthreads();
  int stage = 0;
  unsigned parity = 0;
  const auto next = [&] {
    if (++stage == stages) stage = 0, parity ^= 1;
  };
  if (warp == consumers) {  // the producer
    if (lane == 0) {
      for (int i = 0; i < tiles * k_tiles; ++i, next()) {
        if (bug != Bug::no_wait_empty)
          mbarrier_wait_parity(&s.empty[stage], bug == Bug::wrong_parity ? parity : parity ^ 1);
        const unsigned bytes = bug == Bug::too_few_bytes    ? stage_bytes / 2
                               : bug == Bug::too_many_bytes ? stage_bytes + 16
                                                            : stage_bytes;
        mbarrier_arrive_expect_tx(&s.full[stage], bytes);
        cp_async_bulk_tensor(s.stage[stage], in, &s.full[stage], {0, i * rows});
      }
      if (bug == Bug::no_last_wait) {
        mbarrier_wait_parity(&s.empty[stage], parity ^ 1);
        mbarrier_arrive_expect_tx(&s.full[stage], stage_bytes);
        cp_async_bulk_tensor(s.stage[stage], in, &s.full[stage], {0, 0});
      }
    }
    return;
  }
  for (int tile = 0; tile < tiles; ++tile) {
    float sum[rows / consumers]{};
    if (bug == Bug::parity_not_carried) parity = 0;
    for (int i = 0; i < k_tiles; ++i, next()) {
      if (bug != Bug::no_wait_full) mbarrier_wait_parity(&s.full[stage], parity);
      for (int r = 0; r < rows / consumers; ++r)
        sum[r] += s.stage[stage][warp * (rows / consumers) + r][lane];
      __syncwarp();
      if (lane == 0 || bug == Bug::too_many_arrivals)
        if (bug != Bug::one_consumer_only || warp == 0) mbarrier_arrive(&s.empty[stage]);
    }
    for (int r = 0; r < rows / consumers; ++r) s.out[warp * (rows / consumers) + r][lane] = sum[r];
    fence_proxy_async();
    bar_sync(1, 32 * consumers);
    if (threadIdx.x == 0) {
      cp_async_bulk_tensor_store(out, s.out, {0, tile * rows});
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
    }
    bar_sync(1, 32 * consumers);
  }
}

class SimtPipeline : public SimtHopper {
 protected:
  Aligned<float> in_, out_;
  template <Bug bug>
  std::string run_it() {
    const CUtensorMap in =
        map_of(in_.at, ElementType::f32, {columns, rows * k_tiles * tiles}, {columns, rows});
    const CUtensorMap out =
        map_of(out_.at, ElementType::f32, {columns, rows * tiles}, {columns, rows});
    return error_of<sum_boxes<bug>>(1, 32 * (consumers + 1), sizeof(Shared), in, out);
  }
  bool is_right() const {
    for (int tile = 0; tile < tiles; ++tile)
      for (int i = 0; i < rows * columns; ++i) {
        float sum = 0;
        for (int k = 0; k < k_tiles; ++k)
          sum += in_.at[(tile * k_tiles + k) * rows * columns + i];
        if (!(out_.at[tile * rows * columns + i] == sum)) return false;
      }
    return true;
  }
};

TEST_F(SimtPipeline, IsExactAndSilentInEveryOrder) {
  in_each_order_and_delivery([&] {
    for (simt::seed = 1; simt::seed <= 3; ++simt::seed) {
      std::fill(std::begin(out_.at), std::end(out_.at), 0.0f);
      EXPECT_EQ(run_it<Bug::none>(), "");
      EXPECT_TRUE(is_right());
    }
  });
}

}  // namespace
}  // namespace bv::simt_gpu
