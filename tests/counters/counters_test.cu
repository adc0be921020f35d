// The stand-in's counters on kernels whose counts are known by hand.
#include <gtest/gtest.h>

#include "kernels/cuda/hopper/ptx_tma.cuh"
#include "kernels/cuda/hopper/ptx_wgmma.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "simt/counters/counters.h"
#include "simt/counters/lines_json.h"

namespace bv::simt_gpu {
namespace {

template <class T>
T* device_array(size_t count) {
  T* p = nullptr;
  check(cudaMalloc(&p, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(p, 0, count * sizeof(T)), "cudaMemset");
  return p;
}

// The sum of the counts by instruction.
simt::Counters sum_of(const simt::LaunchLines& lines) {
  simt::Counters sum = lines.counters;
  sum.loads = sum.stores = {}, sum.shared = sum.ldmatrix = {};
  sum.barriers = sum.shuffles = sum.votes = sum.mma_m16n8k16 = sum.atomics = sum.partial = 0;
  for (const auto& [instruction, line] : lines.lines) {
    using simt::AccessKind;
    const simt::LineCounts& c = line.counts;
    const AccessKind kind = simt::Access::kind_of(instruction);
    (kind == AccessKind::store ? sum.stores : sum.loads) += c.global;
    (kind == AccessKind::ldmatrix ? sum.ldmatrix : sum.shared) += c.shared;
    if (kind <= AccessKind::cp_async) sum.partial += c.partial;
    if (kind == AccessKind::barrier) sum.barriers += c.executions;
    if (kind == AccessKind::shuffle) sum.shuffles += c.executions;
    if (kind == AccessKind::vote) sum.votes += c.executions;
    if (kind == AccessKind::mma) sum.mma_m16n8k16 += c.executions;
    if (kind == AccessKind::atomic) sum.atomics += c.executions;
  }
  return sum;
}

simt::LaunchLines lines;  // of the last counts_of()

template <auto kernel, class... Args>
simt::Counters counts_of(dim3 grid, dim3 block, size_t shared_bytes, const Args&... args) {
  simt::Lines::on = true;
  simt::take_counters(), simt::Lines::take();
  launch<kernel>(grid, block, shared_bytes, nullptr, args...);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const simt::Counters counts = simt::take_counters().at(kernel_name<kernel>());
  lines = simt::Lines::take().at(kernel_name<kernel>());
  EXPECT_EQ(named_numbers(sum_of(lines)), named_numbers(counts));
  return counts;
}

// ---- Global memory ------------------------------------------------------------------------------
__global__ void strided_copy(float* out, const float* inp) {
  out[threadIdx.x] = inp[32 * threadIdx.x];
}
TEST(Counters, AStridedCopyTouches32SectorsARequest) {
  const auto c =
      counts_of<strided_copy>(1, 64, 0, device_array<float>(64), device_array<float>(2048));
  EXPECT_EQ(c.launches, 1u);
  EXPECT_EQ(c.warps, 2u);
  EXPECT_EQ(c.loads.requests, 2u);
  EXPECT_EQ(c.loads.sectors, 64u);
  EXPECT_EQ(c.loads.bytes, 256u);
  EXPECT_EQ(c.stores.requests, 2u);
  EXPECT_EQ(c.stores.sectors, 8u);
  EXPECT_EQ(c.sectors_read, 64u);
  EXPECT_EQ(c.sectors_written, 8u);
  EXPECT_EQ(c.partial, 0u);
}

__global__ void scattered_store(float* out, const float* inp) {
  out[8 * threadIdx.x] = inp[threadIdx.x];
}
TEST(Counters, AnUncoalescedStoreTouches32SectorsARequest) {
  const auto c =
      counts_of<scattered_store>(1, 32, 0, device_array<float>(256), device_array<float>(32));
  EXPECT_EQ(c.stores.requests, 1u);
  EXPECT_EQ(c.stores.sectors, 32u);
  EXPECT_EQ(c.stores.bytes, 128u);
  EXPECT_EQ(c.loads.sectors, 4u);
}

__global__ void wide_copy(float4* out, const float4* inp) { out[threadIdx.x] = inp[threadIdx.x]; }
TEST(Counters, SixteenBytesALaneAreOneRequest) {
  const auto c = counts_of<wide_copy>(1, 32, 0, device_array<float4>(32), device_array<float4>(32));
  EXPECT_EQ(c.loads.requests, 1u);
  EXPECT_EQ(c.loads.sectors, 16u);
  EXPECT_EQ(c.loads.bytes, 512u);
  EXPECT_EQ(c.stores.requests, 1u);
}

__global__ void misplaced_copy(float* out, const float* inp) {
  out[threadIdx.x] = inp[threadIdx.x + 1];
}
TEST(Counters, AMisplacedWarpTouchesOneSectorMore) {
  const auto c =
      counts_of<misplaced_copy>(1, 32, 0, device_array<float>(32), device_array<float>(33));
  EXPECT_EQ(c.loads.sectors, 5u);
  EXPECT_EQ(c.stores.sectors, 4u);
}

__global__ void all_read_the_same(float* out, const float* inp) {
  out[blockIdx.x * 32 + threadIdx.x] = inp[threadIdx.x];
}
TEST(Counters, WhatIsReadAgainMovesOnce) {
  const auto c =
      counts_of<all_read_the_same>(10, 32, 0, device_array<float>(320), device_array<float>(32));
  EXPECT_EQ(c.loads.sectors, 40u);
  EXPECT_EQ(c.sectors_read, 4u);
  EXPECT_EQ(c.sectors_written, 40u);
  EXPECT_EQ(c.moved(), 44u * 32);
}

// ---- Divergent lanes ----------------------------------------------------------------------------
__global__ void half_a_warp(float* out, const float* inp) {
  if (threadIdx.x % 2) out[threadIdx.x] = inp[threadIdx.x];
}
TEST(Counters, ABranchOfHalfAWarp) {
  const auto c = counts_of<half_a_warp>(1, 32, 0, device_array<float>(32), device_array<float>(32));
  EXPECT_EQ(c.loads.requests, 1u);
  EXPECT_EQ(c.loads.bytes, 64u);
  EXPECT_EQ(c.partial, 2u);
}

__global__ void a_loop_of_its_own_length(float* out, const float* inp) {
  float sum = 0;
  for (unsigned i = 0; i <= threadIdx.x; ++i) sum += inp[32 * i + threadIdx.x];
  out[threadIdx.x] = sum;
}
TEST(Counters, TurnsOfALoopBelongTogether) {
  const auto c = counts_of<a_loop_of_its_own_length>(1, 32, 0, device_array<float>(32),
                                                     device_array<float>(1024));
  EXPECT_EQ(c.loads.requests, 32u);
  EXPECT_EQ(c.loads.bytes, 4u * 32 * 33 / 2);
  EXPECT_EQ(c.loads.sectors, 8u * (1 + 2 + 3 + 4));  // turn i: lanes i ... 31
  EXPECT_EQ(c.partial, 31u);
}

// ---- Shared memory ------------------------------------------------------------------------------
template <int pitch>
struct Tile {
  float at[32][pitch];
};
template <int pitch>
__global__ void transpose(float* out, const float* inp) {
  auto& s = shared<Tile<pitch>>();
  s.at[threadIdx.y][threadIdx.x] = inp[32 * threadIdx.y + threadIdx.x];
  __syncthreads();
  out[32 * threadIdx.y + threadIdx.x] = s.at[threadIdx.x][threadIdx.y];
}
TEST(Counters, ATransposeWithoutPaddingTakes32Turns) {
  const auto c = counts_of<transpose<32>>(1, dim3(32, 32), sizeof(Tile<32>),
                                          device_array<float>(1024), device_array<float>(1024));
  EXPECT_EQ(c.shared.requests, 64u);
  EXPECT_EQ(c.shared.wavefronts, 32u + 32 * 32);
  EXPECT_EQ(c.shared.conflicts, 32u * 31);
  EXPECT_EQ(c.barriers, 32u);
  EXPECT_EQ(c.loads.sectors, 128u);
  EXPECT_EQ(c.stores.sectors, 128u);
}
TEST(Counters, APaddedTransposeTakesOneTurn) {
  const auto c = counts_of<transpose<33>>(1, dim3(32, 32), sizeof(Tile<33>),
                                          device_array<float>(1024), device_array<float>(1024));
  EXPECT_EQ(c.shared.requests, 64u);
  EXPECT_EQ(c.shared.wavefronts, 64u);
  EXPECT_EQ(c.shared.conflicts, 0u);
}

struct Wide {
  float4 at[32];
};
__global__ void wide_in_shared(float4* out, const float4* inp) {
  auto& s = shared<Wide>();
  s.at[threadIdx.x] = inp[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s.at[31 - threadIdx.x];
}
TEST(Counters, SixteenBytesALaneTakeFourTurns) {
  const auto c = counts_of<wide_in_shared>(1, 32, sizeof(Wide), device_array<float4>(32),
                                           device_array<float4>(32));
  EXPECT_EQ(c.shared.requests, 2u);
  EXPECT_EQ(c.shared.wavefronts, 8u);
  EXPECT_EQ(c.shared.conflicts, 0u);
}

// ---- TMA ----------------------------------------------------------------------------------------
struct Bulk {
  alignas(128) float at[32];
  uint64_t full;
};
__global__ void bulk_copies(float* out, const float* inp) {
  auto& s = shared<Bulk>();
  if (threadIdx.x == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, 80);
    cp_async_bulk(s.at, inp + 4, 80, &s.full);  // bytes 16 to 95
  }
  __syncthreads();
  mbarrier_wait_parity(&s.full, 0);
  if (threadIdx.x == 0) {
    cp_async_bulk_store(out, s.at, 64);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read<0>();
  }
}
TEST(Counters, TmaCopiesTouchSectorsWithoutRequests) {
  setenv("SIMT_ARCH", "sm_90", 1);
  const auto c =
      counts_of<bulk_copies>(1, 64, sizeof(Bulk), device_array<float>(32), device_array<float>(32));
  unsetenv("SIMT_ARCH");
  EXPECT_EQ(c.tma_load_bytes, 80u);
  EXPECT_EQ(c.tma_load_sectors, 3u);
  EXPECT_EQ(c.tma_store_bytes, 64u);
  EXPECT_EQ(c.tma_store_sectors, 2u);
  EXPECT_EQ(c.mbarrier_waits, 64u);
  EXPECT_EQ(c.mbarrier_stalls, 64u);  // late delivery: all threads wait before the bytes land
  EXPECT_EQ(c.requests(), 0u);
  EXPECT_EQ(c.sectors_read, 3u);
  EXPECT_EQ(c.sectors_written, 2u);
}

// ---- wgmma --------------------------------------------------------------------------------------
struct Operands {
  alignas(1024) char a[64 * 128], b[32 * 128];
};
__global__ void products_of_warpgroups() {
  auto& s = shared<Operands>();
  const uint64_t a = wgmma_descriptor(s.a, Swizzle::b128, 1024),
                 b = wgmma_descriptor(s.b, Swizzle::b128, 1024);
  float wide[16], narrow[4];
  wgmma_fence(wide, narrow);
  wgmma_mma_async<__half>(wide, a, b, false);
  wgmma_mma_async<__half>(wide, wgmma_advance(a, 32), wgmma_advance(b, 32), true);
  wgmma_mma_async<__half>(narrow, a, b, false);
  wgmma_commit_group();
  wgmma_wait_group<0>(wide, narrow);
}
TEST(Counters, WgmmasAreCountedByShapeOnceForEachWarpgroup) {
  setenv("SIMT_ARCH", "sm_90", 1);
  const auto c = counts_of<products_of_warpgroups>(1, 256, sizeof(Operands));
  unsetenv("SIMT_ARCH");
  EXPECT_EQ(c.wgmma[32 / 8 - 1], 4u);
  EXPECT_EQ(c.wgmma[8 / 8 - 1], 2u);
  EXPECT_EQ(c.wgmma_flops(), 2u * 64 * 16 * (4 * 32 + 2 * 8));
  EXPECT_EQ(c.wgmma_reads.requests, 12u);
  EXPECT_EQ(c.wgmma_reads.wavefronts, 4u * (16 + 8) + 2 * (16 + 2));
  EXPECT_EQ(c.wgmma_reads.conflicts, 0u);
  const auto named = simt::named_numbers(c);
  EXPECT_EQ(named.at("wgmma m64n32k16"), 4u);
  EXPECT_EQ(named.at("wgmma m64n8k16"), 2u);
  EXPECT_EQ(named.at("wgmma reads"), 12u);
}

// ---- Instructions of warps ----------------------------------------------------------------------
template <int pitch>
struct Rows {
  alignas(16) __half at[32][pitch];
};
template <int pitch>
__global__ void product(float* out, const __half* inp, int rows) {
  auto& s = shared<Rows<pitch>>();
  const int lane = int(threadIdx.x);
  cp_async_16(s.at[lane], inp + 8 * lane, lane < rows);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  uint32_t a[4];
  ldmatrix_x4(a, s.at[lane]);
  float d[4]{};
  mma_m16n8k16<__half>(d, a, a[0], a[1]);
  mma_m16n8k16<__half>(d, a, a[2], a[3]);
  out[lane] = warp_sum(d[0] + d[1] + d[2] + d[3]);
}
TEST(Counters, TensorCoresAndWhatFeedsThem) {
  const auto c = counts_of<product<64>>(1, 32, sizeof(Rows<64>), device_array<float>(32),
                                        device_array<__half>(256), 24);
  EXPECT_EQ(c.mma_m16n8k16, 2u);
  EXPECT_EQ(c.cp_async_bytes, 24u * 16);
  EXPECT_EQ(c.loads.requests, 1u);
  EXPECT_EQ(c.loads.sectors, 12u);
  EXPECT_EQ(c.shuffles, 5u);
  EXPECT_EQ(c.ldmatrix.requests, 1u);
  EXPECT_EQ(c.ldmatrix.wavefronts, 4u * 8);  // rows of 128 bytes begin in the same bank
  EXPECT_EQ(c.ldmatrix.conflicts, 4u * 7);
}
TEST(Counters, PaddedRowsOfLdmatrix) {
  const auto c = counts_of<product<72>>(1, 32, sizeof(Rows<72>), device_array<float>(32),
                                        device_array<__half>(256), 32);
  EXPECT_EQ(c.ldmatrix.wavefronts, 4u);
  EXPECT_EQ(c.ldmatrix.conflicts, 0u);
  EXPECT_EQ(c.shared.conflicts, 0u);
}

// __shared__ variables as in `make try`, each with memory of its own.
__global__ void columns_of_variables(float* out) {
  const auto variable = [](const char* name, auto site) {
    return static_cast<float*>(simt::shared_variable(name, 32 * 32 * sizeof(float), site));
  };
  float* const first = variable("first", simt::Site::current());
  float* const second = variable("second", simt::Site::current());
  first[threadIdx.x] = 1;
  second[32 * threadIdx.x] = 2;
  __syncthreads();
  out[threadIdx.x] = first[31 - threadIdx.x];
}
TEST(Counters, SharedVariables) {
  const auto c = counts_of<columns_of_variables>(1, 32, 0, device_array<float>(32));
  EXPECT_EQ(c.shared.requests, 3u);
  EXPECT_EQ(c.shared.wavefronts, 1u + 32u + 1u);
  EXPECT_EQ(c.shared.conflicts, 31u);
}

__global__ void histogram(unsigned* counts, const unsigned* inp) {
  atomicAdd(&counts[inp[threadIdx.x]], 1u);
}
TEST(Counters, Atomics) {
  const auto c =
      counts_of<histogram>(1, 64, 0, device_array<unsigned>(8), device_array<unsigned>(64));
  EXPECT_EQ(c.atomics, 2u);
  EXPECT_EQ(c.sectors_written, 1u);
}

}  // namespace
}  // namespace bv::simt_gpu
