// Kernels that call host functions. g++ compiles both files below; nvcc accepts the second and
// refuses the first, as does make try.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

TEST(SimtHostCalls, AKernelThatCallsAFunctionOfTheHost) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string wrong = scratch / "wrong.cu", right = scratch / "right.cu";
  write_text(wrong, R"(float half_of(float x) { return x / 2; }
template <class T, class U = T>
static T twice(T x) {
  return 2 * x;
}
__device__ float both(float x) { return x*half_of(x); }
__global__ void __launch_bounds__(128) work(float* x) {
  if (x[0] > 0 && both(1)) x[1] = twice<float>(2);
  for (int i = 0; i < 3; ++i) { return half_of(x[i]), void(); }
}
int main() { work<<<1, 1>>>(nullptr); }
)");
  const Ended refused =
      shell("env -u MAKEFLAGS -u MAKELEVEL make -s try BUILD=" + build_folder() + " FILE=" + wrong);
  EXPECT_EQ(refused.code, 2);
  const std::string lacks = ", which lacks __device__: a GPU has no code for it\n";
  EXPECT_TRUE(
      has(refused.output, "try: " + wrong + ":6: both, a __device__ function, calls half_of" +
                              lacks + "try: " + wrong + ":9: the kernel work calls half_of" +
                              lacks + "try: " + wrong + ":8: the kernel work calls twice" + lacks));
  write_text(right, R"(#define CUDA_CHECK(x) check(x)
float half_of(float x) { return x / 2; }  // __device__ float both()
__device__ float half_of(int x) { return x / 2.f; }
float plain(float x) { return half_of(x); }
constexpr int round_up(int n) { return (n + 3) / 4 * 4; }
__host__ __device__ float on_both(float x) {
#ifdef __CUDA_ARCH__
  return x;
#else
  return plain(x);
#endif
}
__device__ float later(float x);
namespace inner { float width(float x) { return x; } }
void permute(float x) { plain(x); }
struct Box {
  float side;
  __host__ __device__ Box(float plain) : side(plain) {}
  __device__ float width() const { return side; }
  float host_only() { return plain(side); }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};
template <class Permute>
__global__ void work(float* x, Permute permute) {
  float plain(2);
  float* main(x);
  const auto host_only = [](float y) { return y; };
  Box box(1);
  x[0] = host_only(3) + half_of(int(1)) + box.width() + plain + *main + permute(1);
  if (x[0] > 1) printf("plain(%g)\n", later(1));  // half_of(2)
}
__device__ float later(float x) { return on_both(x); }
int main() { work<<<round_up(1), 1>>>((float*)nullptr, Same{}); permute(plain(2)); }
)");
  EXPECT_EQ(shell("simt/find_host_calls " + right).output, "");
}

// g++ accepts these, or refuses them in a page about templates.
TEST(SimtHostCalls, WhatNvccRefusesIsALine) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "wrong.cu";
  write_text(file, R"(float half_of(float x) { return x / 2; }
#if 0
#elif defined NEVER
__global__ void never(float* x) { x[0] = half_of(1); }
#endif
__global__ int returns(float* x) { return 0; }
__global__ void takes(std::vector<float> x) {}
template <class T> __global__ void fill(T* x, int n) { x[0] = n; }
int main() {
  float* x = nullptr;
  fill(x, 3);
  fill<float>(x, 3);
  fill<<<4>>>(x, 3);
  fill<float><<<dim3(4, 2)>>>(x, 3);
  fill<float><<<dim3(4, 2), 32>>>(x, 3);
  fill<<<1, 32>>>(x, (3));
}
)");
  const std::string at = "try: " + file,
                    start = " is a kernel: start it by fill<<<blocks, threads>>>";
  const std::string lacks = " lacks the threads of a block: fill<<<blocks, threads>>>(...)\n";
  EXPECT_EQ(shell("simt/find_host_calls " + file).output,
            at + ":6: the kernel returns returns int, but a kernel returns void\n" + at +
                ":7: the kernel takes takes a std::vector, whose functions a GPU has no code for: "
                "pass a pointer\n" +
                at + ":11: fill" + start + "(...)\n" + at + ":12: fill" + start + "(...)\n" + at +
                ":13: fill<<<4>>>" + lacks + at + ":14: fill<<<dim3(4, 2)>>>" + lacks);
}

}  // namespace
}  // namespace bv::test
