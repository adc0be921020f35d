// The stand-in's device side: what it computes, and what it must catch. Each kernel that says
// "planted" has the bug that its name says, and the message is held to naming it: the kernel, the
// block, the threads, the places in this file.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/simt/device/control.h"

namespace bv::BAREVISION_GPU {
namespace {

using simt::Order;
constexpr std::array orders{Order::forward, Order::reverse, Order::random};

#ifdef __SANITIZE_ADDRESS__
constexpr bool asan = true;
#else
constexpr bool asan = false;
#endif

// At once, not by way of a stream.
template <auto kernel, class... Args>
void run(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  simt::run({.name = kernel_name<kernel>(),
             .grid = grid,
             .block = block,
             .shared_bytes = shared_bytes,
             .body = [=] { kernel(args...); }});
}

template <auto kernel, class... Args>
std::string message_of(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  try {
    run<kernel>(grid, block, shared_bytes, args...);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "no error";
}
// The same, and prints it.
template <auto kernel, class... Args>
std::string error_of(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  const std::string message = message_of<kernel>(grid, block, shared_bytes, args...);
  std::printf("  %s\n", message.c_str());
  return message;
}

// Where in this file, as messages say it.
std::string at(int line) { return "simt_device_test.cpp:" + std::to_string(line) + ":"; }

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << (text) << "\ndoesn't say: " << (part)

class SimtDevice : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    simt::order = Order::forward;
    unsetenv("SIMT_ARCH");
  }
};

// The kernel's output in each order.
template <auto kernel>
std::array<std::vector<float>, 3> in_each_order(dim3 grid, dim3 block, size_t shared_bytes,
                                                const float* inp, size_t count) {
  std::array<std::vector<float>, 3> outputs;
  for (size_t i = 0; i < orders.size(); ++i) {
    simt::order = orders[i];
    outputs[i].assign(count, -1);
    run<kernel>(grid, block, shared_bytes, outputs[i].data(), inp);
  }
  simt::order = Order::forward;
  return outputs;
}

bool bit_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return !std::memcmp(a.data(), b.data(), a.size() * sizeof(float));
}
using Outputs = std::array<std::vector<float>, 3>;
bool all_bit_equal(const Outputs& o) { return bit_equal(o[0], o[1]) && bit_equal(o[0], o[2]); }
bool all_differ(const Outputs& o) {
  return !bit_equal(o[0], o[1]) && !bit_equal(o[0], o[2]) && !bit_equal(o[1], o[2]);
}

// ---- What it computes --------------------------------------------------------------------------

__global__ void write_index(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] += block * threads + thread;
}

TEST_F(SimtDevice, EveryThreadOfEveryBlockRunsOnce) {
  for (const Order order : orders) {
    simt::order = order;
    std::vector<unsigned> out(5 * 3 * 2 * 7 * 3 * 2), want(out.size());
    run<write_index>(dim3(5, 3, 2), dim3(7, 3, 2), 0, out.data());
    std::iota(want.begin(), want.end(), 0u);
    EXPECT_EQ(out, want);
  }
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
  for (const Order order : orders)
    for (const unsigned mask : {~0u, 0x0000FFFFu, 0x00F0F0F1u}) {
      simt::order = order;
      const int threads = 72;  // the last warp has 8
      std::vector<Votes> out(threads);
      run<vote>(1, threads, 0, out.data(), mask);
      for (int t = 0; t < threads; ++t) {
        const unsigned there = t < 64 ? ~0u : 0xFFu;
        if (mask >> t % 32 & 1) {
          EXPECT_EQ(out[t].ballot, 0x49249249u & mask & there) << t;
          EXPECT_EQ(out[t].any, mask >> 5 & 1) << t;
          EXPECT_EQ(out[t].all, 1u) << t;
        }
        EXPECT_EQ(out[t].count, 15);
        EXPECT_EQ(out[t].one, 1);
        EXPECT_EQ(out[t].every, 0);
      }
    }
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
  for (const Order order : orders)
    for (const int width : {32, 8}) {
      simt::order = order;
      std::vector<Shuffled> out(64);
      run<shuffle_all>(1, 64, 0, out.data(), width);
      for (int t = 0; t < 64; ++t) {
        const int first = t / width * width, last = first + width - 1;
        const auto own_unless = [&](bool inside, int source) {
          return 100 + (inside ? source : t);
        };
        EXPECT_EQ(out[t].index, 100 + first + (t % 32 * 7 + 3) % width);
        EXPECT_EQ(out[t].up, own_unless(t - 3 >= first, t - 3));
        EXPECT_EQ(out[t].down, own_unless(t + 3 <= last, t + 3));
        EXPECT_EQ(out[t].exclusive_or, 100 + (t ^ 5));
        EXPECT_EQ(out[t].wide, 0.1 * (100 + first));
      }
    }
}

// Two halves of a warp, each on its own way; and a warp of 8 lanes.
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
  for (const Order order : orders) {
    simt::order = order;
    std::vector<int> out(48, -1);
    run<halves>(1, 48, 0, out.data());
    for (int t = 0; t < 48; ++t) EXPECT_EQ(out[t], t < 16 ? 120 : t < 32 ? t : 120 + 16 * 32) << t;
  }
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
  for (const Order order : orders) {
    simt::order = order;
    const std::string e = error_of<planted_barrier_not_by_all>(dim3(2, 2), dim3(32, 4), 0);
    EXPECT_SAYS(e, "planted_barrier_not_by_all: block (");
    EXPECT_SAYS(e, ": thread (0,0,0) waits at ");
    EXPECT_SAYS(e, at(not_by_all_line));
    EXPECT_SAYS(e, ", but thread (3,1,0) has returned");
  }
}

constexpr int two_places_line = __LINE__ + 3;
__global__ void planted_two_places() {
  if (threadIdx.x < 64)
    __syncthreads();
  else
    __syncthreads();
}
TEST_F(SimtDevice, BarrierAtTwoPlaces) {
  const std::string e = error_of<planted_two_places>(1, 128, 0);
  EXPECT_SAYS(e, "planted_two_places: block (0,0,0): thread (64,0,0) waits at ");
  EXPECT_SAYS(e, at(two_places_line + 2));
  EXPECT_SAYS(e, ", but thread (0,0,0) at ");
  EXPECT_SAYS(e, at(two_places_line));
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
  const std::string e = error_of<planted_ring>(1, 32, 0, out.data());
  EXPECT_SAYS(e, at(ring_line));
  EXPECT_SAYS(e, at(ring_line + 2));
  EXPECT_SAYS(e, "thread (0,0,0)");
  EXPECT_SAYS(e, "thread (16,0,0)");
}

__global__ void planted_in_each_block(unsigned work_of_block_0) {
  volatile unsigned sum = 0;
  if (blockIdx.x == 0)
    for (unsigned i = 0; i < work_of_block_0; ++i) sum = sum + i;
  if (threadIdx.x == 1) __syncwarp(1);
}
TEST_F(SimtDevice, TheFirstFailingBlockIsNamedWhateverTheTiming) {
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(message_of<planted_in_each_block>(40, 32, 0, 100'000u)
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
  const std::string e = error_of<planted_not_in_own_mask>(1, 64, 0);
  EXPECT_SAYS(e,
              "planted_not_in_own_mask: block (0,0,0): thread (20,0,0) is not in its own mask, "
              "0x000fffff, at ");
  EXPECT_SAYS(e, at(own_mask_line));
}

constexpr int mask_not_by_all_line = __LINE__ + 2;
__global__ void planted_mask_not_by_all() {
  if (threadIdx.x < 16 && threadIdx.x != 9) __syncwarp(0x0000FFFF);
}
TEST_F(SimtDevice, NamedLaneDoesNotCome) {
  const std::string e = error_of<planted_mask_not_by_all>(1, 32, 0);
  EXPECT_SAYS(e, "thread (0,0,0) waits at ");
  EXPECT_SAYS(e, at(mask_not_by_all_line));
  EXPECT_SAYS(e, " for the lanes 0x0000ffff, but thread (9,0,0) has returned");
}

constexpr int masks_differ_line = __LINE__ + 1;
__global__ void planted_masks_differ() { __ballot_sync(threadIdx.x == 5 ? ~0u : 0x0000FFFFu, 1); }
TEST_F(SimtDevice, MasksDiffer) {
  const std::string e = error_of<planted_masks_differ>(1, 16, 0);
  EXPECT_EQ(e, "no error");  // 16 lanes are all that there are
  const std::string differ = error_of<planted_masks_differ>(1, 32, 0);
  EXPECT_SAYS(differ, "thread (16,0,0) is not in its own mask, 0x0000ffff, at ");
  EXPECT_SAYS(differ, at(masks_differ_line));
}

constexpr int absent_line = __LINE__ + 1;
__global__ void planted_absent_lane(int* out) { out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 8); }
TEST_F(SimtDevice, ShuffleFromALaneThatIsNotThere) {
  std::vector<int> out(40);
  const std::string e = error_of<planted_absent_lane>(1, 40, 0, out.data());
  EXPECT_SAYS(e, "thread (32,0,0) reads lane 8, which takes no part at ");
  EXPECT_SAYS(e, at(absent_line));
}

constexpr int whole_warp_line = __LINE__ + 3;
__global__ void planted_half_a_warp() {
  uint32_t r[4];
  ldmatrix_x4(r, &shared<std::array<uint4, 16>>()[threadIdx.x]);
}
TEST_F(SimtDevice, InstructionsOfAWarpWantAWholeOne) {
  const std::string e = error_of<planted_half_a_warp>(1, 16, 256);
  EXPECT_SAYS(e, "thread (0,0,0) is in a warp of 16 threads, not 32, at ");
  EXPECT_SAYS(e, at(whole_warp_line));
}

// ---- Races -------------------------------------------------------------------------------------

constexpr int threads = 128;
struct Neighbours {
  float x[threads];
};
template <bool with_barrier>
__global__ void neighbour(float* out, const float* inp) {
  auto& s = shared<Neighbours>();
  const unsigned t = threadIdx.x;
  s.x[t] = inp[t];
  if constexpr (with_barrier) __syncthreads();
  out[t] = s.x[(t + 1) % threads];
}
template <bool with_barrier>
__global__ void neighbour_in_warp(float* out, const float* inp) {
  auto& s = shared<Neighbours>();
  const unsigned t = threadIdx.x;
  s.x[t] = inp[t];
  if constexpr (with_barrier) __syncwarp();
  out[t] = s.x[t ^ 1];
}

std::vector<float> counting(size_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 1.0f);
  return x;
}

TEST_F(SimtDevice, RaceInSharedMemoryShowsBetweenOrders) {
  const auto inp = counting(threads);
  const auto f = [&]<auto kernel>() {
    return in_each_order<kernel>(1, threads, sizeof(Neighbours), inp.data(), threads);
  };
  EXPECT_TRUE(all_bit_equal(f.operator()<neighbour<true>>()));
  EXPECT_TRUE(all_differ(f.operator()<neighbour<false>>()));
  EXPECT_TRUE(all_bit_equal(f.operator()<neighbour_in_warp<true>>()));
  EXPECT_TRUE(all_differ(f.operator()<neighbour_in_warp<false>>()));
}

template <bool planted>
__global__ void between_blocks(float* out, const float* inp) {
  out[blockIdx.x] = inp[blockIdx.x];
  if (planted && blockIdx.x > 0) out[blockIdx.x] += out[blockIdx.x - 1];
}
TEST_F(SimtDevice, RaceBetweenBlocksShowsBetweenOrders) {
  const auto inp = counting(50);
  EXPECT_TRUE(all_bit_equal(in_each_order<between_blocks<false>>(50, 1, 0, inp.data(), 50)));
  EXPECT_FALSE(all_bit_equal(in_each_order<between_blocks<true>>(50, 1, 0, inp.data(), 50)));
}

__global__ void when(float* out, const float*) {
  auto& s = shared<Neighbours>();
  for (int step = 0; step < 2; ++step) {
    if (threadIdx.x == 0 && step == 0) s.x[0] = 0;
    __syncwarp();
    out[2 * threadIdx.x + step] = s.x[0]++;
  }
}
TEST_F(SimtDevice, AWarpRunsAheadOfTheOthers) {
  const Outputs out = in_each_order<when>(1, 64, sizeof(Neighbours), nullptr, 128);
  EXPECT_EQ(out[0][2 * 31 + 1], 63);  // all that the first warp does, and then
  EXPECT_EQ(out[0][2 * 32], 64);      // the second begins
}

// Tiles go through two stages, fetched one ahead; the sum of what its neighbour has fetched.
enum class Bug { none, no_wait, early_overwrite };
constexpr int tiles = 6;
struct Stages {
  alignas(16) float x[2][4 * threads];
};
template <Bug bug>
__global__ void pipeline(float* out, const float* inp) {
  auto& s = shared<Stages>();
  const unsigned t = threadIdx.x;
  const auto fetch = [&](int tile) {
    if (tile < tiles) cp_async_16(&s.x[tile % 2][4 * t], inp + (tile * threads + t) * 4);
    cp_async_commit();
  };
  float sum = 0;
  fetch(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fetch(tile + 1);
    if constexpr (bug != Bug::no_wait) cp_async_wait<1>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) sum += s.x[tile % 2][4 * ((t + 40) % threads) + i];
    if constexpr (bug != Bug::early_overwrite) __syncthreads();
  }
  out[t] = sum;
}

TEST_F(SimtDevice, AsynchronousCopies) {
  const auto inp = counting(tiles * threads * 4);
  std::vector<float> want(threads);
  for (int t = 0; t < threads; ++t)
    for (int tile = 0; tile < tiles; ++tile)
      for (int i = 0; i < 4; ++i) want[t] += inp[(tile * threads + (t + 40) % threads) * 4 + i];
  const auto right = [&]<Bug bug>() {
    const auto outputs =
        in_each_order<pipeline<bug>>(1, threads, sizeof(Stages), inp.data(), threads);
    std::array<bool, 3> is_right;
    for (int i = 0; i < 3; ++i) is_right[i] = bit_equal(outputs[i], want);
    return is_right;
  };
  EXPECT_EQ(right.operator()<Bug::none>(), (std::array{true, true, true}));
  // A copy that is read before its wait: in the order in which copies land late.
  EXPECT_FALSE(right.operator()<Bug::no_wait>()[0]);
  // A stage that is written while others still read it: in the one in which they land at once.
  EXPECT_FALSE(right.operator()<Bug::early_overwrite>()[1]);
}

__global__ void copy_of_nothing(float* out, const float*) {
  auto& s = shared<Stages>();
  cp_async_16(&s.x[0][4 * threadIdx.x], nullptr, false);
  cp_async_commit();
  cp_async_wait<0>();
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = s.x[0][4 * threadIdx.x + i];
}
TEST_F(SimtDevice, AsynchronousCopyOfWhatIsNotThereIsZero) {
  const size_t count = 4 * threads;
  for (const auto& out : in_each_order<copy_of_nothing>(1, threads, sizeof(Stages), nullptr, count))
    EXPECT_EQ(out, std::vector<float>(count, 0));
}

// ---- Memory ------------------------------------------------------------------------------------

__global__ void planted_unwritten(float* out, const float*) {
  auto& s = shared<Neighbours>();
  if (threadIdx.x != 5) s.x[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = s.x[threadIdx.x];
}
TEST_F(SimtDevice, UnwrittenSharedMemoryIsNaN) {
  // Twice: nothing is left of the block before.
  for (int i = 0; i < 2; ++i)
    for (const auto& out :
         in_each_order<planted_unwritten>(3, threads, sizeof(Neighbours), nullptr, threads))
      for (int t = 0; t < threads; ++t) EXPECT_EQ(std::isnan(out[t]), t == 5);
}

__global__ void planted_beyond_shared(int index) {
  volatile float* x = shared<Neighbours>().x;
  if (threadIdx.x == 17) x[index] = 3;
}
TEST_F(SimtDevice, WriteBeyondSharedMemory) {
  if (asan) {
    EXPECT_DEATH(error_of<planted_beyond_shared>(1, 32, sizeof(Neighbours), threads),
                 "use-after-poison.*planted_beyond_shared.*"
                 "simt: planted_beyond_shared: block \\(0,0,0\\): thread \\(17,0,0\\)");
    return;
  }
  EXPECT_EQ(error_of<planted_beyond_shared>(1, 32, sizeof(Neighbours), threads),
            "planted_beyond_shared: block (0,0,0): a write to byte 512 of 512 bytes of shared "
            "memory");
  EXPECT_EQ(error_of<planted_beyond_shared>(1, 32, sizeof(Neighbours), -2),
            "planted_beyond_shared: block (0,0,0): a write 5 bytes before shared memory");
}

__global__ void planted_larger_than_launched() { shared<Neighbours>().x[0] = 0; }
TEST_F(SimtDevice, MoreSharedMemoryThanLaunchedWith) {
  EXPECT_EQ(error_of<planted_larger_than_launched>(1, 32, 500),
            "planted_larger_than_launched: block (0,0,0): launched with 500 bytes of shared "
            "memory, but uses 512");
}

constexpr int misaligned_rows_line = __LINE__ + 5;
__global__ void planted_misaligned_ldmatrix() {
  auto& s = shared<Stages>();
  uint32_t r[4];
  auto* bytes = reinterpret_cast<unsigned char*>(s.x);
  ldmatrix_x4(r, bytes + 16 * threadIdx.x + (threadIdx.x == 6 ? 8 : 0));
}
constexpr int misaligned_copy_line = __LINE__ + 3;
__global__ void planted_misaligned_copy(const float* inp) {
  auto& s = shared<Stages>();
  if (threadIdx.x < 8) cp_async_16(&s.x[0][4 * threadIdx.x], inp + (threadIdx.x == 6 ? 1 : 0));
}
constexpr int copy_outside_line = __LINE__ + 3;
__global__ void planted_copy_outside(const float* inp) {
  auto& s = shared<Stages>();
  cp_async_16(&s.x[1][4 * threadIdx.x + 4], inp);
}
TEST_F(SimtDevice, InstructionsWantAlignedSharedMemory) {
  alignas(16) float inp[8] = {};
  const std::string rows = error_of<planted_misaligned_ldmatrix>(1, 32, sizeof(Stages));
  EXPECT_SAYS(rows, "thread (6,0,0) calls ldmatrix 8 bytes past a multiple of 16 at ");
  EXPECT_SAYS(rows, at(misaligned_rows_line));
  const std::string copy = error_of<planted_misaligned_copy>(1, 32, sizeof(Stages), +inp);
  EXPECT_SAYS(copy, "thread (6,0,0) calls cp.async 4 bytes past a multiple of 16 at ");
  EXPECT_SAYS(copy, at(misaligned_copy_line));
  const std::string outside = error_of<planted_copy_outside>(1, threads, sizeof(Stages), +inp);
  EXPECT_SAYS(outside, "thread (127,0,0) calls cp.async outside shared memory at ");
  EXPECT_SAYS(outside, at(copy_outside_line));
}

// ---- Launches that a chip refuses --------------------------------------------------------------

__global__ void nothing() {}

std::string refusal(dim3 grid, dim3 block, size_t shared_bytes, const char* arch = nullptr,
                    bool asked = true) {
  arch ? setenv("SIMT_ARCH", arch, 1) : unsetenv("SIMT_ARCH");
  try {
    simt::check_limits({"nothing", grid, block, shared_bytes, nothing,
                        asked ? shared_bytes : simt::shared_bytes_unasked});
  } catch (const std::runtime_error& e) {
    std::printf("  %s\n", e.what());
    return e.what();
  }
  return "";
}

TEST_F(SimtDevice, Limits) {
  EXPECT_EQ(refusal(1, 1024, 0), "");
  EXPECT_EQ(refusal(1, 1025, 0),
            "nothing: a block of (1025,1,1) threads, but it can have (1,1,1) to (1024,1024,64)");
  EXPECT_EQ(refusal(1, dim3(1, 1, 65), 0),
            "nothing: a block of (1,1,65) threads, but it can have (1,1,1) to (1024,1024,64)");
  EXPECT_EQ(refusal(1, dim3(32, 33), 0),
            "nothing: a block of (32,33,1) threads, together 1056, but it can have 1024");
  EXPECT_EQ(refusal(1, 0, 0),
            "nothing: a block of (0,1,1) threads, but it can have (1,1,1) to (1024,1024,64)");
  const std::string grid = " blocks, but it can have (1,1,1) to (2147483647,65535,65535)";
  EXPECT_EQ(refusal(dim3(2147483647u, 65535, 65535), 32, 0), "");
  EXPECT_EQ(refusal(2147483648u, 32, 0), "nothing: a grid of (2147483648,1,1)" + grid);
  EXPECT_EQ(refusal(dim3(1, 65536), 32, 0), "nothing: a grid of (1,65536,1)" + grid);
  EXPECT_EQ(refusal(dim3(1, 1, 65536), 32, 0), "nothing: a grid of (1,1,65536)" + grid);
  EXPECT_EQ(refusal(dim3(7, 0), 32, 0), "nothing: a grid of (7,0,1)" + grid);

  for (const auto& [arch, kib] :
       {std::pair{"sm_75", 64}, {"sm_80", 163}, {"sm_86", 99}, {"sm_89", 99}, {"sm_90", 227}}) {
    const std::string most = std::to_string(kib * 1024);
    EXPECT_EQ(refusal(1, 32, kib * 1024, arch), "");
    EXPECT_EQ(refusal(1, 32, kib * 1024 + 1, arch), "nothing: " + std::to_string(kib * 1024 + 1) +
                                                        " bytes of shared memory, but a block on " +
                                                        arch + " can have " + most);
  }
  EXPECT_EQ(refusal(1, 32, 48 * 1024, nullptr, false), "");
  EXPECT_EQ(refusal(1, 32, 48 * 1024 + 1, nullptr, false),
            "nothing: 49153 bytes of shared memory, but above 49152 it must ask: "
            "cudaFuncAttributeMaxDynamicSharedMemorySize");
  EXPECT_EQ(refusal(1, 32, 0, "sm_70"),
            "SIMT_ARCH=sm_70: no such chip here; there are sm_75, sm_80, sm_86, sm_89, sm_90");
}

// ---- What ends the process, with a line that says where ----------------------------------------

__global__ void planted_spin(volatile int* flag) {
  if (threadIdx.x == 2)
    while (*flag == 0) {
    }
}
__global__ void planted_spin_with_waits(volatile int* flag) {
  while (*flag == 0) __syncwarp();
}
TEST_F(SimtDevice, SpinningKernelIsEnded) {
  const auto spin = [](auto launch) {
    setenv("SIMT_TIMEOUT", "0.3", 1);
    int flag = 0;
    launch(&flag);
  };
  EXPECT_DEATH(spin([](int* flag) { run<planted_spin>(dim3(1, 2), 32, 0, flag); }),
               "simt: planted_spin: block \\(0,[01],0\\): thread \\(2,0,0\\): still running after "
               "0.3 s \\(SIMT_TIMEOUT\\)");
  EXPECT_DEATH(spin([](int* flag) { run<planted_spin_with_waits>(1, 32, 0, flag); }),
               "simt: planted_spin_with_waits: block \\(0,0,0\\): thread \\([0-9]+,0,0\\): still "
               "running after 0.3 s \\(SIMT_TIMEOUT\\)");
}

__global__ void planted_wild_pointer(volatile float* p) {
  if (threadIdx.x == 9) *p = 1;
}
TEST_F(SimtDevice, CrashNamesItsThread) {
  auto* nobodys = reinterpret_cast<float*>(0x40);
  EXPECT_DEATH(run<planted_wild_pointer>(dim3(1, 3), 32, 0, nobodys),
               "simt: planted_wild_pointer: block \\(0,[012],0\\): thread \\(9,0,0\\)");
}

[[gnu::noinline]] int deep(volatile int* p) {  // NOLINT: endless on purpose
  volatile char frame[1000];
  frame[0] = static_cast<char>(*p);
  return *p ? 0 : deep(p) + frame[0];
}
__global__ void planted_deep_recursion(volatile int* p, int* out) {
  __syncthreads();
  if (threadIdx.x == 4) *out = deep(p);
}
TEST_F(SimtDevice, StackOverflowIsCaught) {
  int zero = 0, out = 0;
  EXPECT_DEATH(run<planted_deep_recursion>(1, 32, 0, &zero, &out),
               "simt: planted_deep_recursion: block \\(0,0,0\\): thread \\(4,0,0\\)");
}

__global__ void planted_misaligned_pack(float* p) {
  if (threadIdx.x == 1) store_pack(p + 1, load_pack(p + 5));
}
TEST_F(SimtDevice, MisalignedVectorAccessIsCaught) {
  alignas(16) float x[12] = {};
  EXPECT_DEATH(error_of<planted_misaligned_pack>(1, 32, 0, +x),
               "simt: planted_misaligned_pack: block \\(0,0,0\\): thread \\(1,0,0\\)");
}

constexpr int trap_line = __LINE__ + 2;
__global__ void planted_trap() {
  if (threadIdx.x == 30) __trap();
}
TEST_F(SimtDevice, Trap) {
  const std::string e = error_of<planted_trap>(1, 32, 0);
  EXPECT_SAYS(e, "planted_trap: block (0,0,0): thread (30,0,0) meets __trap at ");
  EXPECT_SAYS(e, at(trap_line));
}

TEST_F(SimtDevice, BreakIsRefusedUnlessWellFormed) {
  setenv("SIMT_BREAK", "nothing,0,0", 1);
  EXPECT_EQ(error_of<nothing>(1, 32, 0),
            "SIMT_BREAK=nothing,0,0: is to be KERNEL,bx,by,bz,tx,ty,tz");
  setenv("SIMT_BREAK", "nothing<1, 2>,0,0,0,31,0,0", 1);
  EXPECT_EQ(error_of<nothing>(1, 32, 0), "no error");
  unsetenv("SIMT_BREAK");
}

}  // namespace
}  // namespace bv::BAREVISION_GPU
