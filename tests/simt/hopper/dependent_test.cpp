// Kernels that may begin before the kernel ahead has ended must not see its writes until their
// griddepcontrol.wait, in streams and in graphs captured from them.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "tests/simt/hopper/hopper_test.h"

namespace bv::simt_gpu {
namespace {

constexpr int blocks = 5;

void writes(int* x, int value) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  x[blockIdx.x * 64 + threadIdx.x] = value;
}
enum class Wait { before, one_thread_before, after, never };
// y = x + 1.
template <Wait wait>
void adds_one(const int* x, int* y) {
  auto& ready = shared<uint64_t>();
  if (wait == Wait::before) griddepcontrol_wait();
  if (wait == Wait::one_thread_before) {
    if (threadIdx.x == 0) {
      mbarrier_init(&ready, 1);
      griddepcontrol_wait();
    }
    __syncthreads();
  }
  const unsigned i = blockIdx.x * 64 + threadIdx.x;
  const int read = x[i];
  if (wait == Wait::after) griddepcontrol_wait();
  y[i] = read + 1;
}

class SimtDependentLaunch : public SimtHopper {
 protected:
  int *x_ = nullptr, *y_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void SetUp() override {
    SimtHopper::SetUp();
    cudaMalloc(&x_, blocks * 64 * sizeof(int));
    cudaMalloc(&y_, blocks * 64 * sizeof(int));
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaMemsetAsync(x_, 0, blocks * 64 * sizeof(int), stream_);
  }
  void TearDown() override {
    cudaStreamDestroy(stream_);
    cudaFree(x_);
    cudaFree(y_);
    SimtHopper::TearDown();
  }
  template <Wait wait>
  void launch_both(int value) {
    launch<writes>(blocks, 64, 0, stream_, x_, value);
    launch_dependent<adds_one<wait>>(blocks, 64, sizeof(uint64_t), stream_, x_, y_);
  }
  // The value of y's elements if they are all equal, otherwise -1.
  int result() {
    std::vector<int> y(blocks * 64);
    cudaMemcpyAsync(y.data(), y_, y.size() * sizeof(int), cudaMemcpyDeviceToHost, stream_);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess)
        << cudaGetErrorString(cudaGetLastError());
    return std::equal(y.begin() + 1, y.end(), y.begin()) ? y[0] : -1;
  }
};

TEST_F(SimtDependentLaunch, SeesTheKernelAheadAfterItsWaitAlone) {
  in_each_order([&] {
    launch_both<Wait::before>(7);
    EXPECT_EQ(result(), 8);
    launch_both<Wait::one_thread_before>(9);
    EXPECT_EQ(result(), 10);
    launch_both<Wait::after>(20);
    EXPECT_EQ(result(), 10);  // x as it was before
    launch_both<Wait::never>(30);
    EXPECT_EQ(result(), 21);
    launch<adds_one<Wait::never>>(blocks, 64, sizeof(uint64_t), stream_, x_, y_);  // not dependent
    EXPECT_EQ(result(), 31);
  });
}

TEST_F(SimtDependentLaunch, LaunchIsDependentWhileThereIsADependentLaunches) {
  const size_t before = simt::early_kernels();
  launch<writes>(blocks, 64, 0, stream_, x_, 7);
  {
    const DependentLaunches on(true);
    launch<adds_one<Wait::after>>(blocks, 64, sizeof(uint64_t), stream_, x_, y_);
    const DependentLaunches off(false);
    launch<writes>(blocks, 64, 0, stream_, x_, 8);
  }
  launch<adds_one<Wait::after>>(blocks, 64, sizeof(uint64_t), stream_, y_, x_);
  EXPECT_EQ(result(), 1);  // x was 0 before it was 7
  EXPECT_EQ(simt::early_kernels(), before + 1);
}

TEST_F(SimtDependentLaunch, BeginsEarlyInItsFirstBlocks) {
  constexpr unsigned many = 20;
  int *x = nullptr, *y = nullptr;
  cudaMalloc(&x, many * 64 * sizeof(int));
  cudaMalloc(&y, many * 64 * sizeof(int));
  cudaMemsetAsync(x, 0, many * 64 * sizeof(int), stream_);
  launch<writes>(many, 64, 0, stream_, x, 7);
  launch_dependent<adds_one<Wait::after>>(many, 64, sizeof(uint64_t), stream_, x, y);
  std::vector<int> sums(many * 64);
  cudaMemcpyAsync(sums.data(), y, sums.size() * sizeof(int), cudaMemcpyDeviceToHost, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(std::ranges::count(sums, 1), 8 * 64);
  EXPECT_EQ(std::ranges::count(sums, 8), (many - 8) * 64);
  cudaFree(x);
  cudaFree(y);
}

TEST_F(SimtDependentLaunch, DoesNotBeginEarlyWhereMemoryIsLarge) {
  void* large = nullptr;
  ASSERT_EQ(cudaMalloc(&large, size_t{65} << 20), cudaSuccess);
  launch_both<Wait::never>(7);
  EXPECT_EQ(result(), 8);
  cudaFree(large);
  launch_both<Wait::never>(20);
  EXPECT_EQ(result(), 8);
}

TEST_F(SimtDependentLaunch, AGraphKeepsThatItMayBeginEarly) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  launch_both<Wait::before>(41);
  launch_dependent<writes>(blocks, 64, 0, stream_, x_, 50);
  launch_dependent<adds_one<Wait::after>>(blocks, 64, sizeof(uint64_t), stream_, x_, y_);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
  for (int replay = 0; replay < 2; ++replay) {
    cudaGraphLaunch(executable, stream_);
    EXPECT_EQ(result(), 42);  // 41 + 1, since 50 was hidden
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace bv::simt_gpu
