// The stand-in's device side: races, shared memory, refused launches, errors that end the process.
#include <numeric>

#include "kernels/cuda/ptx.cuh"
#include "tests/simt/simt_device.h"

namespace bv::simt_gpu {
namespace {

using Outputs = std::vector<std::vector<float>>;

// The kernel's output in each order.
template <auto kernel>
Outputs outputs_of(dim3 grid, dim3 block, size_t shared_bytes, const float* inp, size_t count) {
  Outputs outputs;
  in_each_order([&] {
    outputs.emplace_back(count, -1);
    run<kernel>(grid, block, shared_bytes, outputs.back().data(), inp);
  });
  return outputs;
}

bool bit_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return !std::memcmp(a.data(), b.data(), a.size() * sizeof(float));
}
bool all_bit_equal(const Outputs& o) { return bit_equal(o[0], o[1]) && bit_equal(o[0], o[2]); }
bool all_differ(const Outputs& o) {
  return !bit_equal(o[0], o[1]) && !bit_equal(o[0], o[2]) && !bit_equal(o[1], o[2]);
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
    return outputs_of<kernel>(1, threads, sizeof(Neighbours), inp.data(), threads);
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
  EXPECT_TRUE(all_bit_equal(outputs_of<between_blocks<false>>(50, 1, 0, inp.data(), 50)));
  EXPECT_FALSE(all_bit_equal(outputs_of<between_blocks<true>>(50, 1, 0, inp.data(), 50)));
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
  const Outputs out = outputs_of<when>(1, 64, sizeof(Neighbours), nullptr, 128);
  EXPECT_EQ(out[0][2 * 31 + 1], 63);  // all of the first warp runs, and then
  EXPECT_EQ(out[0][2 * 32], 64);      // the second begins
}

// ---- Meetings ----------------------------------------------------------------------------------

template <auto meet>
__global__ void writes_after(float* out, const float* inp) {
  if constexpr (!std::is_null_pointer_v<decltype(meet)>) meet();
  out[threadIdx.x] = inp[threadIdx.x];
}
unsigned arrived = 0;

// A test of the kernel table leaves out orders where threads don't meet.
TEST_F(SimtDevice, KnowsWhetherThreadsMeet) {
  const auto inp = counting(threads);
  std::vector<float> out(threads);
  const auto meets = [&]<auto kernel>() {
    simt::forget_meetings();
    run<kernel>(dim3(2), threads, sizeof(Neighbours), out.data(), inp.data());
    EXPECT_FALSE(simt::meetings().copies);
    return simt::meetings().threads;
  };
  const auto after = [&]<auto meet>() { return meets.operator()<writes_after<meet>>(); };
  EXPECT_FALSE(after.operator()<nullptr>());
  EXPECT_TRUE(after.operator()<[] { __syncthreads(); }>());
  EXPECT_TRUE(after.operator()<[] { __syncthreads_or(1); }>());
  EXPECT_TRUE(after.operator()<[] { __barrier_sync_count(1, 32); }>());
  EXPECT_TRUE(after.operator()<[] { __syncwarp(); }>());
  EXPECT_TRUE(after.operator()<[] { __any_sync(~0u, 1); }>());
  EXPECT_TRUE(after.operator()<[] { __shfl_xor_sync(~0u, 1, 1); }>());
  EXPECT_TRUE(after.operator()<[] { shared<Neighbours>(); }>());
  EXPECT_TRUE(after.operator()<[] { __threadfence(); }>());
  EXPECT_TRUE(after.operator()<[] { __threadfence_block(); }>());
  EXPECT_TRUE(after.operator()<[] { atomicAdd(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicSub(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicAnd(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicOr(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicXor(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicExch(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicCAS(&arrived, 1u, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicMax(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicMin(&arrived, 1u); }>());
  EXPECT_TRUE(after.operator()<[] { atomicInc(&arrived, 1u); }>());
  // Planted: without the barrier, what they share is still a meeting, so all orders are run.
  EXPECT_TRUE(meets.operator()<neighbour<false>>());
}

// ---- Copies ------------------------------------------------------------------------------------

// Tiles pass through two stages, fetched one ahead; each thread sums a neighbour's elements.
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
  const auto right = [&]<Bug bug>(size_t order) {
    const Outputs out = outputs_of<pipeline<bug>>(1, threads, sizeof(Stages), inp.data(), threads);
    return bit_equal(out[order], want);
  };
  for (size_t order = 0; order < 3; ++order) EXPECT_TRUE(right.operator()<Bug::none>(order));
  // Reading a copy before waiting for it fails in the order with late copies.
  EXPECT_FALSE(right.operator()<Bug::no_wait>(0));
  // Overwriting a stage that others still read fails in the order with immediate copies.
  EXPECT_FALSE(right.operator()<Bug::early_overwrite>(1));
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
  for (const auto& out : outputs_of<copy_of_nothing>(1, threads, sizeof(Stages), nullptr, count))
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
  // Runs twice, to show that nothing is left over from an earlier block.
  for (int i = 0; i < 2; ++i)
    for (const auto& out :
         outputs_of<planted_unwritten>(3, threads, sizeof(Neighbours), nullptr, threads))
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
// __shared__ variables as make try rewrites them: reset in each block, and with checked bounds.
constexpr int variable_line = __LINE__ + 3;
__global__ void planted_write_beyond_variable(float* out, int at) {
  const simt::Site site = simt::Site::current();
  auto* tile = static_cast<float*>(simt::shared_variable("tile", 32 * sizeof(float), site));
  out[blockIdx.x] = tile[0];
  tile[at] = 1;
}
TEST_F(SimtDevice, SharedVariables) {
  std::vector<float> out(8);
  run<planted_write_beyond_variable>(8, 1, 0, out.data(), 0);
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
  if (asan) return;  // it ends the process at the write
  EXPECT_TRUE(says(error_of<planted_write_beyond_variable>(1, 1, 0, out.data(), 32),
                   {"planted_write_beyond_variable: block (0,0,0): a write to byte ",
                    " of 128 bytes of shared memory: tile at ", at(variable_line - 1)}));
}

TEST_F(SimtDevice, MoreSharedMemoryThanLaunchedWith) {
  EXPECT_EQ(error_of<planted_larger_than_launched>(1, 32, 500),
            "planted_larger_than_launched: block (0,0,0): launched with 500 bytes of shared "
            "memory, but uses 512");
}

constexpr int misaligned_rows_line = __LINE__ + 5;
__global__ void planted_misaligned_ldmatrix() {
  auto& s = shared<Stages>();
  uint32_t r[4];
  auto* x = reinterpret_cast<unsigned char*>(s.x);
  ldmatrix_x4(r, x + 16 * threadIdx.x + (threadIdx.x == 6 ? 8 : 0));
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
  EXPECT_TRUE(says(error_of<planted_misaligned_ldmatrix>(1, 32, sizeof(Stages)),
                   {"thread (6,0,0) calls ldmatrix 8 bytes past a multiple of 16 at ",
                    at(misaligned_rows_line)}));
  EXPECT_TRUE(says(error_of<planted_misaligned_copy>(1, 32, sizeof(Stages), +inp),
                   {"thread (6,0,0) calls cp.async 4 bytes past a multiple of 16 at ",
                    at(misaligned_copy_line)}));
  EXPECT_TRUE(
      says(error_of<planted_copy_outside>(1, threads, sizeof(Stages), +inp),
           {"thread (127,0,0) calls cp.async outside shared memory at ", at(copy_outside_line)}));
}

// ---- Refused launches --------------------------------------------------------------

__global__ void nothing() {}

std::string refusal(dim3 grid, dim3 block, size_t shared_bytes, const char* arch = nullptr,
                    bool asked = true) {
  arch ? setenv("SIMT_ARCH", arch, 1) : unsetenv("SIMT_ARCH");
  return message_of([&] {
    const auto function = reinterpret_cast<const void*>(nothing);
    simt::set_shared_limit(function, asked ? shared_bytes : simt::shared_bytes_unasked);
    simt::check_limits({"nothing", grid, block, shared_bytes, nothing, function});
  });
}

TEST_F(SimtDevice, Limits) {
  const std::string block = " threads, but it can have (1,1,1) to (1024,1024,64)",
                    grid = " blocks, but it can have (1,1,1) to (2147483647,65535,65535)";
  const struct {
    dim3 grid, block;
    std::string refusal;
  } cases[] = {
      {1, 1024, "no error"},
      {1, 1025, "nothing: a block of (1025,1,1)" + block},
      {1, dim3(1, 1, 65), "nothing: a block of (1,1,65)" + block},
      {1, dim3(32, 33),
       "nothing: a block of (32,33,1) threads, together 1056, but it can have 1024"},
      {1, 0, "nothing: a block of (0,1,1)" + block},
      {dim3(2147483647u, 65535, 65535), 32, "no error"},
      {2147483648u, 32, "nothing: a grid of (2147483648,1,1)" + grid},
      {dim3(1, 65536), 32, "nothing: a grid of (1,65536,1)" + grid},
      {dim3(1, 1, 65536), 32, "nothing: a grid of (1,1,65536)" + grid},
      {dim3(7, 0), 32, "nothing: a grid of (7,0,1)" + grid},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal(c.grid, c.block, 0), c.refusal);

  for (const auto& [arch, kib] :
       {std::pair{"sm_75", 64}, {"sm_80", 163}, {"sm_86", 99}, {"sm_89", 99}, {"sm_90", 227}}) {
    const int max = kib * 1024;
    EXPECT_EQ(refusal(1, 32, max, arch), "no error");
    EXPECT_EQ(refusal(1, 32, max + 1, arch), "nothing: " + std::to_string(max + 1) +
                                                 " bytes of shared memory, but a block on " + arch +
                                                 " can have " + std::to_string(max));
  }
  EXPECT_EQ(refusal(1, 32, 48 * 1024, nullptr, false), "no error");
  EXPECT_EQ(refusal(1, 32, 48 * 1024 + 1, nullptr, false),
            "nothing: 49153 bytes of shared memory, but above 49152 it must ask: "
            "cudaFuncAttributeMaxDynamicSharedMemorySize");
  EXPECT_EQ(refusal(1, 32, 0, "sm_70"),
            "SIMT_ARCH=sm_70: unknown chip; known are sm_75, sm_80, sm_86, sm_89, sm_90");
}

// ---- Errors that end the process, with a line that names the place ------------------------------

__global__ void planted_spin(volatile int* flag) {
  if (threadIdx.x == 2)
    while (*flag == 0) {
    }
}
__global__ void planted_spin_with_waits(volatile int* flag) {
  while (*flag == 0) __syncwarp();
}
TEST_F(SimtDevice, SpinningKernelIsEnded) {
  setenv("SIMT_TIMEOUT", "0.3", 1);
  int flag = 0;
  EXPECT_DEATH(run<planted_spin>(dim3(1, 2), 32, 0, &flag),
               "simt: planted_spin: block \\(0,[01],0\\): thread \\(2,0,0\\): still running after "
               "0.3 s of processor time \\(SIMT_TIMEOUT\\)");
  EXPECT_DEATH(run<planted_spin_with_waits>(1, 32, 0, &flag),
               "simt: planted_spin_with_waits: block \\(0,0,0\\): thread \\([0-9]+,0,0\\): still "
               "running after 0.3 s of processor time \\(SIMT_TIMEOUT\\)");
  unsetenv("SIMT_TIMEOUT");
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
  EXPECT_TRUE(
      says(error_of<planted_trap>(1, 32, 0),
           {"planted_trap: block (0,0,0): thread (30,0,0) meets __trap at ", at(trap_line)}));
}

TEST_F(SimtDevice, BreakIsRefusedUnlessWellFormed) {
  setenv("SIMT_BREAK", "nothing,0,0", 1);
  EXPECT_EQ(error_of<nothing>(1, 32, 0),
            "SIMT_BREAK=nothing,0,0: should be KERNEL,bx,by,bz,tx,ty,tz");
  setenv("SIMT_BREAK", "nothing<1, 2>,0,0,0,31,0,0", 1);
  EXPECT_EQ(error_of<nothing>(1, 32, 0), "no error");
  unsetenv("SIMT_BREAK");
}

}  // namespace
}  // namespace bv::simt_gpu
