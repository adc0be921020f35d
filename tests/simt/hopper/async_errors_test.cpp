// Mistakes with Hopper's memory instructions, planted one by one: each ends the kernel with a
// message that names it.
#include <gtest/gtest.h>

#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

struct Shared {
  alignas(1024) float box[2][8][32];
  uint64_t barrier[2];
};
constexpr unsigned bytes = 8 * 32 * sizeof(float);

// Thread 0 makes a barrier for one arrival.
void make_barrier(Shared& s) {
  if (threadIdx.x == 0) {
    mbarrier_init(&s.barrier[0], 1);
    fence_mbarrier_init();
  }
  __syncthreads();
}
void load(Shared& s, const CUtensorMap& map, int stage) {
  mbarrier_arrive_expect_tx(&s.barrier[0], bytes);
  cp_async_bulk_tensor(s.box[stage], map, &s.barrier[0], {0, 0});
}
void end_stores() {
  cp_async_bulk_commit_group();
  cp_async_bulk_wait_group_read<0>();
}

class SimtAsyncErrors : public SimtHopper {
 protected:
  Aligned<float> data_, out_;
  CUtensorMap in_{}, to_{};
  void SetUp() override {
    SimtHopper::SetUp();
    in_ = map_of(data_.at, ElementType::f32, {32, 8}, {32, 8});
    to_ = map_of(out_.at, ElementType::f32, {32, 8}, {32, 8});
  }
  // Expects the message in every order, with late and with early copies.
  template <auto kernel>
  void says_in_each(unsigned threads, std::initializer_list<std::string> parts) {
    for (const Delivery d : {Delivery::late, Delivery::early}) {
      simt::delivery = d;
      in_each_order([&] {
        EXPECT_TRUE(says(error_of<kernel>(1, threads, sizeof(Shared), in_, to_), parts));
      });
    }
  }
};

// ---- Proxy fences ------------------------------------------------------------------------------
void stores_planted_without_a_fence(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  s.box[0][threadIdx.x / 32][threadIdx.x % 32] = 1;
  if (threadIdx.x != 33) fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    end_stores();
  }
}
void stores_planted_before_any_fence(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  s.box[0][threadIdx.x / 32][threadIdx.x % 32] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    end_stores();
  }
}
void fence_planted_before_the_store(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  fence_proxy_async();
  s.box[0][threadIdx.x / 32][threadIdx.x % 32] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    end_stores();
  }
}
void stmatrix_planted_without_a_fence(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  const uint32_t r[4]{threadIdx.x, 1, 2, 3};
  stmatrix_x4(&s.box[0][threadIdx.x / 8][threadIdx.x % 8 * 4], r);
  if (threadIdx.x != 9) fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    end_stores();
  }
}
TEST_F(SimtAsyncErrors, AMissingProxyFenceNamesReaderWriterAndPlace) {
  says_in_each<stores_planted_without_a_fence>(
      256, {"stores_planted_without_a_fence: block (0,0,0): thread (0,0,0) reads byte 132 of its "
            "shared memory by TMA store, which thread (33,0,0) has written without "
            "fence.proxy.async since, at ",
            at(61)});
  says_in_each<stores_planted_before_any_fence>(
      256, {"reads byte 0 of its shared memory by TMA store, which a thread has written and none "
            "has executed fence.proxy.async since, at ",
            at(70)});
  says_in_each<fence_planted_before_the_store>(
      256, {"thread (0,0,0) reads byte ", "by TMA store", "has written without fence.proxy.async"});
  says_in_each<stmatrix_planted_without_a_fence>(
      32, {"thread (0,0,0) reads byte 144 of its shared memory by TMA store, which thread (9,0,0) "
           "has written without fence.proxy.async since, at "});
}
void writes_planted_before_a_load(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 5) s.box[0][3][0] = 7;
  __syncthreads();
  if (threadIdx.x == 0) load(s, in, 0);
  mbarrier_wait_parity(&s.barrier[0], 0);
}
TEST_F(SimtAsyncErrors, ALoadOverUnfencedStoresIsNamed) {
  says_in_each<writes_planted_before_a_load>(
      32, {"thread (0,0,0) writes by TMA load byte 384 of its shared memory, which thread (5,0,0) "
           "has written without fence.proxy.async since, at ",
           at(26)});
}

// ---- Readers in flight -------------------------------------------------------------------------
void overwrites_planted_before_wait_group_read(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  s.box[0][threadIdx.x / 32][threadIdx.x % 32] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    cp_async_bulk_commit_group();
  }
  __syncthreads();
  if (threadIdx.x == 40) s.box[0][1][8] = 1.1f;
  __syncthreads();
  if (threadIdx.x == 0) cp_async_bulk_wait_group_read<0>();
}
void loads_planted_over_a_store(const CUtensorMap in, const CUtensorMap to) {
  auto& s = shared<Shared>();
  make_barrier(s);
  s.box[0][threadIdx.x / 32][threadIdx.x % 32] = 1;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    cp_async_bulk_commit_group();
    load(s, in, 0);
  }
  mbarrier_wait_parity(&s.barrier[0], 0);
}
void holds_planted(const CUtensorMap in, const CUtensorMap) {  // as wgmma does
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) {
    simt::hold_read({s.box[0], bytes}, "wgmma", simt::Site::current());
    load(s, in, 0);
  }
  mbarrier_wait_parity(&s.barrier[0], 0);
}
TEST_F(SimtAsyncErrors, AWriteIntoWhatIsStillReadNamesBoth) {
  says_in_each<overwrites_planted_before_wait_group_read>(
      256, {": block (0,0,0): thread (40,0,0) writes byte 160 of its shared memory before its wait "
            "at ",
            at(138), ", which the TMA store of thread (0,0,0) at ", at(133), " may still read"});
  says_in_each<loads_planted_over_a_store>(
      256, {"thread (0,0,0) writes by TMA load byte 0 of its shared memory, which the TMA store of "
            "thread (0,0,0) at ",
            at(148), " may still read, at ", at(26)});
  says_in_each<holds_planted>(
      32, {"writes by TMA load byte 0 of its shared memory, which the wgmma of thread (0,0,0) at ",
           at(158), " may still read, at ", at(26)});
}

// ---- Loads in flight ---------------------------------------------------------------------------
void reads_planted_before_the_wait(const CUtensorMap in, const CUtensorMap to) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) {
    load(s, in, 0);
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});  // the async proxy, too, has to wait
    end_stores();
  }
  mbarrier_wait_parity(&s.barrier[0], 0);
}
void writes_planted_during_a_load(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) load(s, in, 0);
  __syncthreads();
  if (threadIdx.x != 7) return;
  s.box[0][2][1] = -1;
  mbarrier_wait_parity(&s.barrier[0], 1);
}
void loads_planted_into_one_box(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) {
    mbarrier_expect_tx(&s.barrier[0], bytes);
    cp_async_bulk_tensor(s.box[0], in, &s.barrier[0], {0, 0});
    load(s, in, 0);
  }
  mbarrier_wait_parity(&s.barrier[0], 0);
}
TEST_F(SimtAsyncErrors, UsesOfALoadThatNobodyHasWaitedForAreNamed) {
  says_in_each<reads_planted_before_the_wait>(
      32, {"thread (0,0,0) reads byte 0 of its shared memory by TMA store, but nothing has waited "
           "for the TMA load of thread (0,0,0) at ",
           at(26), ", which writes it; read at ", at(183)});
  says_in_each<writes_planted_during_a_load>(
      32, {": block (0,0,0): thread (7,0,0) writes byte 26", " of its shared memory before ",
           ", but nothing has waited for the TMA load of thread (0,0,0) at ", at(26),
           ", which writes it, too"});
  says_in_each<loads_planted_into_one_box>(
      32, {"thread (0,0,0) writes by TMA load byte 0 of its shared memory, w",
           " the TMA load of thread (0,0,0) at ", at(26)});
}

// ---- mbarriers ---------------------------------------------------------------------------------
void arrives_planted_before_init(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  if (threadIdx.x == 0) mbarrier_arrive(&s.barrier[1]);
}
void waits_planted_after_inval(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) {
    mbarrier_inval(&s.barrier[0]);
    mbarrier_wait_parity(&s.barrier[0], 1);
  }
}
void inits_planted_twice(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) mbarrier_init(&s.barrier[0], 2);
}
void writes_planted_over_a_barrier(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 3) s.barrier[0] = 0;
}
void expects_planted_too_much(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) mbarrier_expect_tx(&s.barrier[0], 1 << 20);
}
void inits_planted_for_none(const CUtensorMap, const CUtensorMap) {
  mbarrier_init(&shared<Shared>().barrier[0], 0);
}
void waits_planted_in_a_loop(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  while (!mbarrier_try_wait_parity(&s.barrier[0], 0)) {
  }
}
TEST_F(SimtAsyncErrors, MisusedBarriersAreNamed) {
  says_in_each<arrives_planted_before_init>(
      32, {"calls mbarrier.arrive on byte 2056 of its shared memory, which is not an mbarrier: "
           "not initialised yet, or invalidated, at ",
           at(224)});
  says_in_each<waits_planted_after_inval>(
      32, {"calls mbarrier.try_wait on byte 2048 of its shared memory, which is not an mbarrier"});
  says_in_each<inits_planted_twice>(
      32, {"calls mbarrier.init on the mbarrier at byte 2048 of its shared memory (initialised at ",
           at(19), "), which is valid: mbarrier.inval is missing, at ", at(237)});
  says_in_each<writes_planted_over_a_barrier>(
      32, {": block (0,0,0): thread (3,0,0) writes over the mbarrier at byte 2048 of its shared "
           "memory (initialised at ",
           " before it returns"});
  says_in_each<expects_planted_too_much>(
      32, {"expects 1048576 bytes at the mbarrier", "but a phase counts at most 1048575, at "});
  says_in_each<inits_planted_for_none>(
      32, {"calls mbarrier.init for 0 arrivals, but an mbarrier counts 1 to 1048575, at "});
  says_in_each<waits_planted_in_a_loop>(
      32, {"thread (0,0,0) waits at ", at(255), " for the end of phase 0 of the mbarrier at byte ",
           ", where 0 of 1 arrivals have come; 31 more wait at the same lines: no thread can "
           "continue"});
}

// ---- Addresses and maps ------------------------------------------------------------------------
void loads_planted_to_a_misaligned_box(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) cp_async_bulk_tensor(&s.box[0][0][16], in, &s.barrier[0], {0, 0});
}
void loads_planted_beyond_shared_memory(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) cp_async_bulk_tensor(&s + 1, in, &s.barrier[0], {0, 0});
}
void loads_planted_with_three_coordinates(const CUtensorMap in, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) cp_async_bulk_tensor(s.box[0], in, &s.barrier[0], {0, 0, 0});
}
void copies_planted_of_eight_bytes(const CUtensorMap, const CUtensorMap) {
  auto& s = shared<Shared>();
  make_barrier(s);
  if (threadIdx.x == 0) cp_async_bulk(s.box[0], s.box[1], 8, &s.barrier[0]);
}
TEST_F(SimtAsyncErrors, AddressesAndMapsThatTheHardwareRefusesAreNamed) {
  says_in_each<loads_planted_to_a_misaligned_box>(
      32, {"thread (0,0,0) calls TMA load 64 bytes past a multiple of 128 at ", at(286)});
  says_in_each<loads_planted_beyond_shared_memory>(
      32, {"thread (0,0,0) calls TMA load outside shared memory at "});
  says_in_each<loads_planted_with_three_coordinates>(
      32, {"calls TMA load with 3 coordinates, but the tensor map has rank 2, at "});
  says_in_each<copies_planted_of_eight_bytes>(
      32, {"calls cp.async.bulk for 8 bytes, but it copies multiples of 16, at "});
  in_ = map_of(data_.at, ElementType::f32, {32, 8}, {32, 8}, Swizzle::b128);
  says_in_each<loads_planted_to_a_misaligned_box>(
      32, {"thread (0,0,0) calls TMA load 64 bytes past a multiple of 1024 at "});
  in_ = {};
  says_in_each<loads_planted_to_a_misaligned_box>(
      32, {"calls TMA load with something that is not a tensor map, at "});
}
TEST_F(SimtAsyncErrors, AnOlderChipHasNoSuchInstruction) {
  setenv("SIMT_ARCH", "sm_89", 1);
  says_in_each<inits_planted_for_none>(
      32, {" executes an instruction of sm_90, but the chip is sm_89 (SIMT_ARCH)"});
}

// ---- The block's end ---------------------------------------------------------------------------
void returns_planted_during_a_store(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  fence_proxy_async();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    cp_async_bulk_commit_group();
  }
}
void waits_planted_without_a_commit(const CUtensorMap, const CUtensorMap to) {
  auto& s = shared<Shared>();
  if (threadIdx.x == 0) {
    cp_async_bulk_tensor_store(to, s.box[0], {0, 0});
    cp_async_bulk_wait_group_read<0>();
  }
}
TEST_F(SimtAsyncErrors, AStoreThatItsThreadHasNotWaitedForIsNamed) {
  const std::string end = " may still read shared memory: cp.async.bulk.wait_group.read is missing";
  says_in_each<returns_planted_during_a_store>(
      32, {": block (0,0,0): thread (0,0,0) returns, but its TMA store at ", at(330), end});
  says_in_each<waits_planted_without_a_commit>(32,
                                               {"thread (0,0,0) returns, but its TMA store", end});
}

// ---- Warps -------------------------------------------------------------------------------------
template <unsigned first, unsigned second>
void registers_planted(const CUtensorMap, const CUtensorMap) {
  threadIdx.x / 128 == 0 ? setmaxnreg_dec<first>() : setmaxnreg_inc<second>();
}
void registers_planted_of_three_warps(const CUtensorMap, const CUtensorMap) {
  if (threadIdx.x < 96) setmaxnreg_dec<40>();
}
void registers_planted_unequal(const CUtensorMap, const CUtensorMap) {
  threadIdx.x / 32 == 2 ? setmaxnreg_dec<32>() : setmaxnreg_dec<40>();
}
TEST_F(SimtAsyncErrors, MisusedRegisterCountsAreNamed) {
  in_each_order([&] {
    const auto error = [&]<auto kernel>(unsigned threads) {
      return error_of<kernel>(1, threads, sizeof(Shared), in_, to_);
    };
    EXPECT_EQ((error.operator()<registers_planted<40, 232>>(384)), "no error");
    EXPECT_TRUE(says((error.operator()<registers_planted<40, 240>>(384)),
                     {" brings the block's warps to 66560 registers of 65536: setmaxnreg.inc would "
                      "wait forever, at "}));
    EXPECT_TRUE(
        says((error.operator()<registers_planted<36, 232>>(384)),
             {" calls setmaxnreg.dec for 36 registers, but it takes a multiple of 8 from 24 "
              "to 256, at "}));
    EXPECT_TRUE(says((error.operator()<registers_planted<40, 264>>(384)), {" for 264 registers"}));
    EXPECT_TRUE(says((error.operator()<registers_planted_of_three_warps>(128)),
                     {" calls setmaxnreg at ", ", but warp 3 of its warpgroup doesn't"}));
    EXPECT_TRUE(
        says((error.operator()<registers_planted_unequal>(128)),
             {" registers, but warp ", " of its warpgroup has ", " of setmaxnreg.dec at "}));
    EXPECT_TRUE(says((error.operator()<registers_planted<40, 232>>(160)),
                     {" calls setmaxnreg.inc in a warpgroup of less than four warps, at "}));
  });
}
void elects_planted_by_half_a_warp(const CUtensorMap, const CUtensorMap) {
  if (threadIdx.x < 16) elect_sync();
}
TEST_F(SimtAsyncErrors, AnElectionByPartOfAWarpIsNamed) {
  says_in_each<elects_planted_by_half_a_warp>(
      32, {"thread (0,0,0) waits at ", at(384),
           ", but thread (16,0,0) has ended: all lanes of the warp must reach it"});
}

}  // namespace
}  // namespace bv::simt_gpu
