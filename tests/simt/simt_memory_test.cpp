// The stand-in's device memory: which code may access it, its bounds, its initial contents.
#include <sys/wait.h>

#include <csignal>
#include <cstdio>

#include "tests/simt/simt_host.h"

namespace bv::simt_gpu {
namespace {

class SimtMemory : public SimtHostTest {};

class SimtMemoryDeathTest : public SimtHostTest {
 public:
  void SetUp() override {
    SimtHostTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // kernels run in the child
  }
};

// AddressSanitizer, if built in, handles the fault next and names the line.
bool by_fault(int status) {
  return asan ? WIFEXITED(status) && WEXITSTATUS(status) != 0
              : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

cudaError_t write(float* p, long at) {
  launch<write_at>(1, 1, 0, nullptr, p, at, 1.0f);
  return cudaDeviceSynchronize();
}

// ---- The host does not touch it -----------------------------------------------------------------
TEST_F(SimtMemoryDeathTest, HostReadsDeviceMemory) {
  const volatile float* p = device_array(64);
  EXPECT_EXIT(
      std::printf("%f", double(p[2])), by_fault,
      "^host code read device memory: 0x[0-9a-f]+ is 8 bytes into an allocation of 64 bytes "
      "made by cudaMalloc\n");
}

TEST_F(SimtMemoryDeathTest, HostWritesDeviceMemoryThatWasOpen) {
  float* p = device_array();
  run_fill(p, 1, nullptr);
  EXPECT_EQ(download(p, nullptr), all(1));
  EXPECT_EXIT(*p = 2, by_fault,
              "host code wrote device memory: 0x[0-9a-f]+ is 0 bytes into an allocation of 400 "
              "bytes");
}

TEST_F(SimtMemoryDeathTest, HostWritesDeviceMemoryThatACopyOpened) {
  float* p = device_array();
  const char* const refused = "host code wrote device memory: ";
  cudaMemset(p, 0, sizeof(float));
  cudaDeviceSynchronize();
  EXPECT_EXIT(*p = 2, by_fault, refused);
  const float x = 3;
  cudaMemcpy(p, &x, sizeof x, cudaMemcpyHostToDevice);
  cudaDeviceSynchronize();
  EXPECT_EXIT(*p = 2, by_fault, refused);
  EXPECT_EQ(download(p, nullptr)[0], 3);
  EXPECT_EXIT(*p = 2, by_fault, refused);
}

TEST_F(SimtMemoryDeathTest, HostFunctionWritesDeviceMemory) {
  float* p = device_array();
  const auto write_to = [](void* a) { *static_cast<volatile float*>(a) = 1; };
  EXPECT_EXIT(
      {
        cudaLaunchHostFunc(nullptr, write_to, p);
        cudaDeviceSynchronize();
      },
      by_fault,
      "a host function wrote memory it does not own: 0x[0-9a-f]+ is 0 bytes into an allocation");
}

TEST_F(SimtMemoryDeathTest, OtherFaultsAreLeftToWhoHandledThemBefore) {
  device_array();
  volatile uintptr_t nowhere = 16;
  EXPECT_EXIT(*reinterpret_cast<volatile int*>(nowhere) = 1, by_fault,
              asan ? "^AddressSanitizer" : "^$");
}

// ---- Kernels do not touch host memory ---------------------------------------------------------
struct TwoPointers {
  int n;
  const float *device, *other;
};
__global__ void take_both(TwoPointers) {}

TEST_F(SimtMemory, HostPointerInAKernelsArgument) {
  if (asan) GTEST_SKIP() << "not looked for: see check_argument";
  const std::vector<float> host(length);
  const float on_stack = 0, *pinned = pinned_array(1), *d = device_array();
  const auto refusal = [&](const float* other) {
    return message_of([&] { launch<take_both>(1, 1, 0, nullptr, TwoPointers{1, d, other}); });
  };
  const std::string words = "take_both: invalid argument: an argument points to host memory: 0x";
  EXPECT_TRUE(refusal(host.data()).starts_with(words)) << refusal(host.data());
  EXPECT_TRUE(refusal(&on_stack).starts_with(words)) << refusal(&on_stack);
  EXPECT_TRUE(refusal(host.data()).ends_with(", at byte 16 of 24"));
  EXPECT_EQ(refusal(pinned), "no error");
  EXPECT_EQ(refusal(nullptr), "no error");
}

// ---- Its bounds ---------------------------------------------------------------------------------
TEST_F(SimtMemoryDeathTest, KernelWritesBesideAnAllocation) {
  float* p = device_array();
  if (asan) {
    EXPECT_DEATH(write(p, length),
                 "is 0 bytes past the end of an allocation of 400 bytes made by cudaMalloc");
    EXPECT_DEATH(write(p, length), "AddressSanitizer: use-after-poison");
    EXPECT_DEATH(write(p, -1), "is 4 bytes before an allocation of 400 bytes made by cudaMalloc");
    return;
  }
  EXPECT_TRUE(
      is(write(p, length), cudaErrorIllegalAddress, "write_at wrote memory it does not own: 0x"));
  EXPECT_TRUE(is(cudaGetLastError(), cudaErrorIllegalAddress,
                 "is 0 bytes past the end of an allocation of 400 bytes made by cudaMalloc ("
                 "make asan FILTER=NAME shows the line)"));
  reset();
  p = device_array();
  EXPECT_TRUE(is(write(p, -2), cudaErrorIllegalAddress,
                 "is 8 bytes before an allocation of 400 bytes made by cudaMalloc"));
}

TEST_F(SimtMemory, OddBytesAtTheEndAreGuardedToo) {
  if (asan) GTEST_SKIP() << "the same as above";
  for (const size_t odd : {1, 3, 255, 257, 4097}) {
    float* p = device_array(odd);
    ok(cudaMemsetAsync(p, 0, odd));
    ok(cudaDeviceSynchronize());
    launch<write_at>(1, 1, 0, nullptr, p, long(odd / 4), 1.0f);
    EXPECT_TRUE(is(cudaDeviceSynchronize(), cudaErrorIllegalAddress,
                   "bytes past the end of an allocation of " + std::to_string(odd)));
    reset();
  }
}

TEST_F(SimtMemoryDeathTest, KernelWritesFarBehindAnAllocation) {
  float* p = device_array();
  const auto death =
      "write_at wrote memory it does not own: 0x[0-9a-f]+ is 7600 bytes past the end "
      "of an allocation of 400 bytes made by cudaMalloc";
  EXPECT_EXIT(write(p, 2000), by_fault, death);
}

TEST_F(SimtMemoryDeathTest, KernelUsesFreedMemory) {
  float* p = device_array();
  ok(cudaFree(p));
  EXPECT_DEATH(write(p, 3),
               "0x[0-9a-f]+ is 12 bytes into an allocation of 400 bytes freed by cudaFree");
}

TEST_F(SimtMemoryDeathTest, HostReadsFreedMemory) {
  const volatile float* p = device_array();
  ok(cudaFree(const_cast<float*>(p)));
  EXPECT_DEATH(std::printf("%f", double(p[1])),
               "0x[0-9a-f]+ is 4 bytes into an allocation of 400 bytes freed by cudaFree");
}

TEST_F(SimtMemory, FreesTwiceOrWhatIsNotItsOwn) {
  float* p = device_array();
  EXPECT_TRUE(is(cudaFree(p + 1), cudaErrorInvalidValue,
                 "is not where an allocation made by cudaMalloc begins"));
  ok(cudaFree(p));
  EXPECT_TRUE(is(cudaFree(p), cudaErrorInvalidValue,
                 "is 0 bytes into an allocation of 400 bytes freed by cudaFree"));
  float on_host = 0;
  EXPECT_TRUE(is(cudaFree(&on_host), cudaErrorInvalidValue, "made by cudaMalloc"));
  EXPECT_TRUE(is(cudaFreeHost(&on_host), cudaErrorInvalidValue, "not allocated by cudaMallocHost"));
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
}

// ---- Its content --------------------------------------------------------------------------------
TEST_F(SimtMemory, UnwrittenOutputIsNaN) {
  float* p = device_array();
  launch<fill>(3, 32, 0, nullptr, p, 1.0f, length);  // a block too few: 96 of 100
  const std::vector<float> host = download(p, nullptr);
  for (int i = 0; i < length; ++i) EXPECT_EQ(std::isnan(host[i]), i >= 96) << i;
}

TEST_F(SimtMemory, FreshPinnedMemoryIsNaN) {
  float* p = nullptr;
  ok(cudaMallocHost(&p, bytes));
  EXPECT_TRUE(std::isnan(p[0]) && std::isnan(p[length - 1]));
}

TEST_F(SimtMemory, IsAlignedAsPromisedAndNoBetter) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5} << 20})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(device_array(size)) % 512, 256u) << size;
}

TEST_F(SimtMemory, HasAnEnd) {
  const size_t before = simt::memory_bytes;
  simt::memory_bytes = 1000;
  float* p = device_array(600);
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total, 1000u);
  EXPECT_EQ(free, 400u);
  float* q = p;
  EXPECT_TRUE(is(cudaMalloc(&q, 401), cudaErrorMemoryAllocation,
                 "out of memory: 401 bytes, but 600 of 1000 are allocated"));
  EXPECT_EQ(q, nullptr);
  EXPECT_EQ(cudaMalloc(&q, SIZE_MAX), cudaErrorMemoryAllocation);
  ok(cudaFree(p));
  EXPECT_EQ(cudaMalloc(&q, 1000), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 0), cudaSuccess);
  EXPECT_EQ(q, nullptr);
  simt::memory_bytes = before;
}

TEST_F(SimtMemory, AHugeAllocationOpensAndClosesQuickly) {
  device_array(size_t{256} << 20);
  float* p = device_array();
  for (int i = 0; i < 1000; ++i) {  // with huge pages 128 entries each time; with small ones 65,536
    run_fill(p, float(i), nullptr);
    synchronize(nullptr);
  }
  EXPECT_EQ(download(p, nullptr), all(999));
}

// ---- Copies -------------------------------------------------------------------------------------
TEST_F(SimtMemory, KindOfACopyFitsItsPointers) {
  float* d = device_array();
  std::vector<float> host(length);
  const auto copying = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind);
  };
  EXPECT_TRUE(is(copying(host.data(), d, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
                 "which is host memory and not device memory"));
  EXPECT_TRUE(is(copying(d, d, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
                 "invalid argument: a copy from host to device, from 0x"));
  EXPECT_TRUE(is(copying(d, host.data(), cudaMemcpyDeviceToHost), cudaErrorInvalidValue,
                 "a copy from device to host, to 0x"));
  EXPECT_TRUE(is(copying(d, host.data(), cudaMemcpyDeviceToDevice), cudaErrorInvalidValue,
                 "which is host memory and not device memory"));
  EXPECT_TRUE(is(copying(host.data(), d, cudaMemcpyHostToHost), cudaErrorInvalidValue,
                 "which is device memory and not host memory"));
  EXPECT_TRUE(is(copying(nullptr, d, cudaMemcpyDeviceToHost), cudaErrorInvalidValue,
                 "a copy from device to host, to null"));
  EXPECT_TRUE(
      is(copying(d, d, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidValue, "no such kind"));
  EXPECT_TRUE(is(cudaMemsetAsync(host.data(), 0, bytes), cudaErrorInvalidValue,
                 "which is host memory and not device memory"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimtMemory, CopyStaysWithinItsAllocation) {
  float *d = device_array(), *freed = device_array();
  ok(cudaFree(freed));
  std::vector<float> host(length + 1);
  EXPECT_TRUE(is(cudaMemcpyAsync(d, host.data(), bytes + 4, cudaMemcpyHostToDevice),
                 cudaErrorInvalidValue, "400 bytes made by cudaMalloc: 404 bytes are too many"));
  EXPECT_TRUE(is(cudaMemsetAsync(d + 1, 0, bytes), cudaErrorInvalidValue,
                 "is 4 bytes into an allocation of 400 bytes made by cudaMalloc"));
  EXPECT_TRUE(is(cudaMemcpyAsync(host.data(), freed, bytes, cudaMemcpyDeviceToHost),
                 cudaErrorInvalidValue, "400 bytes freed by cudaFree"));
}

TEST_F(SimtMemory, CopiesInAllDirections) {
  for (simt::stream_seed = 0; simt::stream_seed < seeds; ++simt::stream_seed) {
    const cudaStream_t s = stream();
    float *a = device_array(), *b = device_array(), *host = pinned_array(3);
    copy(a, host, cudaMemcpyDefault, s);
    copy(b, a, cudaMemcpyDeviceToDevice, s);
    ok(cudaMemsetAsync(a, 0, bytes, s));
    EXPECT_EQ(download(b, s), all(3));
    EXPECT_EQ(download(a, s), all(0));
    std::vector<float> other(length);
    ok(cudaMemcpy(other.data(), b, bytes, cudaMemcpyDeviceToHost));
    EXPECT_EQ(other, all(3));
    copy(other.data(), host, cudaMemcpyHostToHost, s);
    EXPECT_EQ(other, all(3));
    for (float* p : {a, b}) ok(cudaFree(p));
    ok(cudaFreeHost(host));
  }
}

}  // namespace
}  // namespace bv::simt_gpu
