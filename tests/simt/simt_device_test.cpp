// The stand-in's device side: what threads compute together, and wrong barriers and masks.
#include "tests/simt/simt_device.h"

#include <numeric>

#include "kernels/cuda/ptx.cuh"

namespace bv::simt_gpu {
namespace {

// ---- Results -----------------------------------------------------------------------------------

__global__ void write_index(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] += block * threads + thread;
}

TEST_F(SimtDevice, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<unsigned> want(5 * 3 * 2 * 7 * 3 * 2);
  std::iota(want.begin(), want.end(), 0u);
  in_each_order([&] {
    std::vector<unsigned> out(want.size());
    run<write_index>(dim3(5, 3, 2), dim3(7, 3, 2), 0, out.data());
    EXPECT_EQ(out, want);
  });
  EXPECT_TRUE(simt::kernels_run().contains("write_index"));
}

struct Votes {
  unsigned ballot, any, all;
  int count, one, every;
};
__global__ void vote(Votes* out, unsigned mask) {
  const unsigned lane = threadIdx.x % 32;
  Votes v{};
  if (mask >> lane & 1) {
    v.ballot = __ballot_sync(mask, lane % 3 == 0);
    v.any = __any_sync(mask, lane == 5);
    v.all = __all_sync(mask, lane < 40);
  }
  v.count = __syncthreads_count(threadIdx.x % 5 == 0);
  v.one = __syncthreads_or(threadIdx.x == 7);
  v.every = __syncthreads_and(threadIdx.x < 20);
  out[threadIdx.x] = v;
}

TEST_F(SimtDevice, Votes) {
  for (const unsigned mask : {~0u, 0x0000FFFFu, 0x00F0F0F1u})
    in_each_order([&] {
      std::vector<Votes> out(72);  // the last warp has 8 threads
      run<vote>(1, 72, 0, out.data(), mask);
      for (int t = 0; t < 72; ++t) {
        const unsigned present = t < 64 ? ~0u : 0xFFu;
        if (mask >> t % 32 & 1) {
          EXPECT_EQ(out[t].ballot, 0x49249249u & mask & present) << t;
          EXPECT_EQ(out[t].any, mask >> 5 & 1) << t;
          EXPECT_EQ(out[t].all, 1u) << t;
        }
        EXPECT_EQ(out[t].count, 15);
        EXPECT_EQ(out[t].one, 1);
        EXPECT_EQ(out[t].every, 0);
      }
    });
}

struct Shuffled {
  int index, up, down, exclusive_or;
  double wide;
};
__global__ void shuffle_all(Shuffled* out, int width) {
  const int lane = threadIdx.x % 32, value = 100 + static_cast<int>(threadIdx.x);
  Shuffled& s = out[threadIdx.x];
  s.index = __shfl_sync(~0u, value, lane * 7 + 3, width);
  s.up = __shfl_up_sync(~0u, value, 3, width);
  s.down = __shfl_down_sync(~0u, value, 3, width);
  s.exclusive_or = __shfl_xor_sync(~0u, value, 5, width);
  s.wide = __shfl_sync(~0u, 0.1 * value, 0, width);
}

TEST_F(SimtDevice, Shuffles) {
  for (const int width : {32, 8})
    in_each_order([&] {
      std::vector<Shuffled> out(64);
      run<shuffle_all>(1, 64, 0, out.data(), width);
      for (int t = 0; t < 64; ++t) {
        const int first = t / width * width, last = first + width - 1;
        EXPECT_EQ(out[t].index, 100 + first + (t % 32 * 7 + 3) % width);
        EXPECT_EQ(out[t].up, 100 + (t - 3 >= first ? t - 3 : t));
        EXPECT_EQ(out[t].down, 100 + (t + 3 <= last ? t + 3 : t));
        EXPECT_EQ(out[t].exclusive_or, 100 + (t ^ 5));
        EXPECT_EQ(out[t].wide, 0.1 * (100 + first));
      }
    });
}

// The halves of the first warp diverge; the second warp has 16 lanes.
__global__ void halves(int* out) {
  const unsigned lane = threadIdx.x % 32;
  int sum = static_cast<int>(threadIdx.x);
  if (lane < 16)
    for (int bits = 8; bits; bits /= 2) sum += __shfl_xor_sync(0x0000FFFF, sum, bits);
  else
    for (int i = 0; i < 3; ++i) __syncwarp(0xFFFF0000);
  __syncwarp();
  out[threadIdx.x] = sum;
}

TEST_F(SimtDevice, PartialWarpsAndPartialMasks) {
  in_each_order([] {
    std::vector<int> out(48, -1);
    run<halves>(1, 48, 0, out.data());
    for (int t = 0; t < 48; ++t) EXPECT_EQ(out[t], t < 16 ? 120 : t < 32 ? t : 120 + 16 * 32) << t;
  });
}

__global__ void tickets(unsigned* counter, int* largest, unsigned* seen) {
  const unsigned mine = atomicAdd(counter, 1u);
  atomicMax(largest, static_cast<int>(mine) - 50);
  seen[mine] = atomicExch(&seen[mine], 1u) + 1;
  atomicCAS(&seen[mine], 1u, 7u);
}

TEST_F(SimtDevice, AtomicsBetweenBlocks) {
  const unsigned n = 64 * 100;
  unsigned counter = 0;
  int largest = -1000;
  std::vector<unsigned> seen(n);
  run<tickets>(100, 64, 0, &counter, &largest, seen.data());
  EXPECT_EQ(counter, n);
  EXPECT_EQ(largest, static_cast<int>(n) - 51);
  EXPECT_EQ(seen, std::vector<unsigned>(n, 7));
}

// ---- Barriers ----------------------------------------------------------------------------------

constexpr int not_by_all_line = __LINE__ + 3;
__global__ void planted_barrier_not_by_all() {
  if (threadIdx.y == 1 && threadIdx.x == 3) return;
  __syncthreads();
}
TEST_F(SimtDevice, BarrierNotReachedByAll) {
  in_each_order([] {
    EXPECT_TRUE(says(
        error_of<planted_barrier_not_by_all>(dim3(2, 2), dim3(32, 4), 0),
        {"planted_barrier_not_by_all: block (", ": thread (0,0,0) waits at ", at(not_by_all_line),
         ", but thread (3,1,0) has ended: all threads of the block must reach it"}));
  });
}

constexpr int two_places_line = __LINE__ + 3;
__global__ void planted_two_places() {
  if (threadIdx.x < 64)
    __syncthreads();
  else
    __syncthreads();
}
TEST_F(SimtDevice, BarrierAtTwoPlaces) {
  EXPECT_TRUE(says(error_of<planted_two_places>(1, 128, 0),
                   {"planted_two_places: block (0,0,0): thread (64,0,0) waits at ",
                    at(two_places_line + 2), ", but thread (0,0,0) at ", at(two_places_line)}));
}

constexpr int ring_line = __LINE__ + 4;
__global__ void planted_ring(float* out) {
  float x = 1;
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    x = __shfl_xor_sync(~0u, x, 1);
  }
  out[threadIdx.x] = x;
}
TEST_F(SimtDevice, BarrierBesideShuffle) {
  std::vector<float> out(32);
  EXPECT_TRUE(says(error_of<planted_ring>(1, 32, 0, out.data()),
                   {at(ring_line), at(ring_line + 2), "thread (0,0,0)", "thread (16,0,0)"}));
}

__global__ void planted_in_each_block(unsigned work_of_block_0) {
  volatile unsigned sum = 0;
  if (blockIdx.x == 0)
    for (unsigned i = 0; i < work_of_block_0; ++i) sum = sum + i;
  if (threadIdx.x == 1) __syncwarp(1);
}
TEST_F(SimtDevice, TheFirstFailingBlockIsNamedWhateverTheTiming) {
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(error_of<planted_in_each_block>(40, 32, 0, 100'000u)
                  .find("planted_in_each_block: block (0,0,0): thread (1,0,0)"),
              0u);
}

TEST_F(SimtDevice, WorksAfterAnError) {
  EXPECT_NE(error_of<planted_two_places>(4, 128, 0), "no error");
  std::vector<int> out(48);
  run<halves>(1, 48, 0, out.data());
  EXPECT_EQ(out[0], 120);
}

// ---- Masks -------------------------------------------------------------------------------------

constexpr int own_mask_line = __LINE__ + 1;
__global__ void planted_not_in_own_mask() { __syncwarp(0x000FFFFF); }
TEST_F(SimtDevice, LaneOutsideItsMask) {
  EXPECT_TRUE(
      says(error_of<planted_not_in_own_mask>(1, 64, 0),
           {"planted_not_in_own_mask: block (0,0,0): thread (20,0,0) is not in its own mask, "
            "0x000fffff, at ",
            at(own_mask_line)}));
}

constexpr int mask_not_by_all_line = __LINE__ + 2;
__global__ void planted_mask_not_by_all() {
  if (threadIdx.x < 16 && threadIdx.x != 9) __syncwarp(0x0000FFFF);
}
TEST_F(SimtDevice, NamedLaneDoesNotCome) {
  EXPECT_TRUE(says(
      error_of<planted_mask_not_by_all>(1, 32, 0),
      {"thread (0,0,0) waits at ", at(mask_not_by_all_line),
       " for the lanes 0x0000ffff, but thread (9,0,0) has ended: all these lanes must reach it"}));
}

constexpr int masks_differ_line = __LINE__ + 1;
__global__ void planted_masks_differ() { __ballot_sync(threadIdx.x == 5 ? ~0u : 0x0000FFFFu, 1); }
TEST_F(SimtDevice, MasksDiffer) {
  EXPECT_EQ(error_of<planted_masks_differ>(1, 16, 0), "no error");  // there are only 16 lanes
  EXPECT_TRUE(
      says(error_of<planted_masks_differ>(1, 32, 0),
           {"thread (16,0,0) is not in its own mask, 0x0000ffff, at ", at(masks_differ_line)}));
}

constexpr int absent_line = __LINE__ + 1;
__global__ void planted_absent_lane(int* out) { out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 8); }
TEST_F(SimtDevice, ShuffleFromALaneThatIsNotThere) {
  std::vector<int> out(40);
  EXPECT_TRUE(
      says(error_of<planted_absent_lane>(1, 40, 0, out.data()),
           {"thread (32,0,0) reads lane 8, which is not in the mask at ", at(absent_line)}));
}

constexpr int whole_warp_line = __LINE__ + 3;
__global__ void planted_half_a_warp() {
  uint32_t r[4];
  ldmatrix_x4(r, &shared<std::array<uint4, 16>>()[threadIdx.x]);
}
TEST_F(SimtDevice, InstructionsOfAWarpWantAWholeOne) {
  EXPECT_TRUE(
      says(error_of<planted_half_a_warp>(1, 16, 256),
           {"thread (0,0,0) is in a warp of 16 threads, not 32, at ", at(whole_warp_line)}));
}

}  // namespace
}  // namespace bv::simt_gpu
