// A ring of stages between a producer warp that loads by TMA and consumer warps. The sums must be
// exact in every order, without messages. Then each of a ring's possible mistakes is planted.
#include <gtest/gtest.h>

#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

constexpr int stages = 3, columns = 32, rows = 8, consumers = 2, k_tiles = 4, tiles = 3;
constexpr unsigned stage_bytes = columns * rows * sizeof(float);

enum class Bug {
  none,
  no_wait_full,        // consumers don't wait for the data
  no_wait_empty,       // the producer doesn't wait for the consumers
  wrong_parity,        // the producer begins with parity 0
  parity_not_carried,  // each tile begins with parity 0 again
  one_consumer_only,   // only the first consumer arrives
  too_many_arrivals,   // each lane arrives
  too_few_bytes,       // expected
  too_many_bytes,
  no_fence_init,
  no_last_wait,  // the block ends with a load in flight
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
        for (int k = 0; k < k_tiles; ++k) sum += in_.at[(tile * k_tiles + k) * rows * columns + i];
        if (!(out_.at[tile * rows * columns + i] == sum)) return false;
      }
    return true;
  }
};

TEST_F(SimtPipeline, IsExactAndSilentInEveryOrder) {
  in_each_order_and_delivery([&] {
    for (simt::seed = 1; simt::seed <= 3; ++simt::seed) {
      std::fill(std::begin(out_.at), std::end(out_.at), 0.0f);
      simt::forget_meetings();
      EXPECT_EQ(run_it<Bug::none>(), "no error");
      EXPECT_TRUE(is_right());
      EXPECT_TRUE(simt::meetings().threads && simt::meetings().copies);
    }
  });
}

// Each mistake must give a message that names it or, in orders whose waits hide it, a wrong sum.
TEST_F(SimtPipeline, DataReadBeforeItsPhaseIsNaNOrNamed) {
  std::string error = run_it<Bug::no_wait_full>();  // late
  EXPECT_TRUE(says(error, {"sum_boxes<", ": block (0,0,0): thread (64,0,0) waits at ", at(55),
                           " for the end of phase ", "; 95 have returned"}));
  EXPECT_FALSE(is_right());
  simt::delivery = Delivery::early;
  simt::order = Order::reverse;
  error = run_it<Bug::no_wait_full>();
  EXPECT_TRUE(says(error, {"thread (64,0,0) writes by TMA load byte 0 of its shared memory, where "
                           "nothing has waited for what the TMA load of thread (64,0,0) at ",
                           at(60), " has written, at "}));
}

TEST_F(SimtPipeline, StagesRefilledTooEarlyAreNamed) {
  in_each_order([&] {
    const std::string error = run_it<Bug::no_wait_empty>();
    EXPECT_TRUE(error.find("one arrival too many, at ") != error.npos ||
                error.find("where nothing has waited for what the TMA load") != error.npos ||
                error.find("nothing orders the two") != error.npos)
        << error;
  });
}

TEST_F(SimtPipeline, WaitsThatNobodyCanEndNameBothSides) {
  in_each_order([&] {
    const std::string consumer = "thread (0,0,0) waits at ", producer = "thread (64,0,0) waits at ",
                      end = ": no thread can continue";
    EXPECT_TRUE(says(run_it<Bug::wrong_parity>(),
                     {consumer, at(74), " for the end of phase 0 of the mbarrier at byte 4096 of ",
                      "(initialised at ", at(40), "), where 0 of 1 arrivals have come; ", producer,
                      at(55), " for the end of phase 0 of the mbarrier at byte 4120 of ",
                      ", where 0 of 2 arrivals have come; 63 more wait at the same lines; 31 have "
                      "returned",
                      end}));
    EXPECT_TRUE(says(run_it<Bug::one_consumer_only>(),
                     {consumer, " for the end of phase 1 of the mbarrier", producer,
                      ", where 1 of 2 arrivals have come", end}));
    EXPECT_TRUE(says(run_it<Bug::too_few_bytes>(),
                     {consumer, ", where 1024 of 512 expected bytes have come; ", end}));
    EXPECT_TRUE(says(run_it<Bug::too_many_bytes>(),
                     {consumer, ", where 1024 of 1040 expected bytes have come; ", end}));
  });
}

TEST_F(SimtPipeline, AParityNotCarriedToTheNextTileIsNamed) {
  in_each_order_and_delivery([&] {
    const std::string error = run_it<Bug::parity_not_carried>();
    EXPECT_TRUE(error != "no error" || !is_right()) << error;
  });
}

TEST_F(SimtPipeline, AnArrivalTooManyIsNamed) {
  EXPECT_TRUE(
      says(run_it<Bug::too_many_arrivals>(),
           {"thread ", " calls mbarrier.arrive", " on the mbarrier", ", but all arrivals of phase ",
            " have come (it expects ", "): one arrival too many, at "}));
}

TEST_F(SimtPipeline, AMissingFenceAfterInitIsNamed) {
  in_each_order([&] {
    EXPECT_TRUE(says(
        run_it<Bug::no_fence_init>(),
        {"thread (64,0,0) lets a TMA load complete on the mbarrier at byte 4096 of its "
         "shared memory (initialised at ",
         at(40), "), but thread (0,0,0) has not executed fence.mbarrier_init since, at ", at(60)}));
  });
}

TEST_F(SimtPipeline, ALoadThatNobodyWaitsForIsNamed) {
  in_each_order([&] {
    EXPECT_TRUE(says(run_it<Bug::no_last_wait>(),
                     {": block (0,0,0): all threads have returned, but nobody has waited for the "
                      "TMA load of thread (64,0,0) at ",
                      at(65)}));
  });
}

}  // namespace
}  // namespace bv::simt_gpu
