// make try: reads of global memory that nothing has written. One program with all cases; its
// argument chooses one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

const std::string program = R"(#include <cstdio>
#include <cstring>
#include <cuda_pipeline.h>
struct Padded {
  char letter;
  int number;
};
struct Long {
  double number;
  int count;
};
__global__ void add_up(const int* x, int* sum) { atomicAdd(sum, x[threadIdx.x]); }  // atomic
__global__ void copy(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }  // element
__global__ void copy_bytes(const char* x, char* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy4(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void by_memcpy(const int* x, int* y, int n) { memcpy(y, x, n); }
__global__ void to_shared(const int* x) {
  __shared__ int tile[32];
  __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);  // asynchronous
  __pipeline_commit();
  __pipeline_wait_prior(0);
}
__global__ void fill(int* x, int value) { x[threadIdx.x] = value; }
__global__ void fill_halves(short* x) { x[2 * threadIdx.x] = 1; }
__global__ void fill3(float4* x) { x[threadIdx.x].x = x[threadIdx.x].y = x[threadIdx.x].z = 1; }
__global__ void fill_structs(Padded* x, Long* y) {
  x[threadIdx.x].letter = 'x';
  x[threadIdx.x].number = -1;
  y[threadIdx.x].number = -1;
  y[threadIdx.x].count = -1;
}
__global__ void copy_structs(const Padded* x, Padded* y, const Long* z, Long* u) {
  y[threadIdx.x] = x[threadIdx.x];
  u[threadIdx.x] = z[threadIdx.x];
}
int main(int, char** words) {
  const size_t bytes = 32 * sizeof(float4);
  int host[128], *x, *y, *sum;
  for (int& h : host) h = -1;
  cudaMalloc(&x, bytes);
  cudaMalloc(&y, bytes);
  cudaMalloc(&sum, sizeof(int));
  const auto is = [&](const char* name) { return !strcmp(words[1], name); };
  if (is("first_read")) copy<<<1, 32>>>(x, y);
  if (is("atomic")) cudaMemset(x, -1, bytes), add_up<<<1, 32>>>(x, sum);
  if (is("written")) cudaMemset(x, -1, bytes), cudaMemset(sum, 0, 4), add_up<<<1, 32>>>(x, sum);
  if (is("copied")) cudaMemcpy(x, host, bytes, cudaMemcpyHostToDevice), copy<<<1, 32>>>(x, y);
  if (is("by_a_kernel")) fill<<<1, 32>>>(x, -1), copy<<<1, 32>>>(x, y);
  if (is("partly")) cudaMemset(x, -1, 31 * 4), copy<<<1, 32>>>(x, y);
  if (is("half_a_word")) cudaMemset(x, -1, 31 * 4 + 2), copy<<<1, 32>>>(x, y);
  if (is("half_words")) fill_halves<<<1, 32>>>((short*)x), copy<<<1, 32>>>(x, y);
  if (is("bytes")) cudaMemset(x, -1, 31), copy_bytes<<<1, 32>>>((char*)x, (char*)y);
  if (is("half_a_vector")) cudaMemset(x, -1, bytes - 8), copy4<<<1, 32>>>((float4*)x, (float4*)y);
  if (is("three_of_four")) fill3<<<1, 32>>>((float4*)x), copy4<<<1, 32>>>((float4*)x, (float4*)y);
  if (is("asynchronous")) to_shared<<<1, 32>>>(x);
  if (is("by_memcpy")) fill<<<1, 32>>>(x, -1), by_memcpy<<<1, 1>>>(x, y, 128), copy<<<1, 32>>>(y, x);
  if (is("memcpy_of_unwritten")) by_memcpy<<<1, 1>>>(x, y, 128);
  if (is("device_to_device")) {
    cudaMemcpy(x, host, 64, cudaMemcpyHostToDevice);
    cudaMemcpy(y, x, 128, cudaMemcpyDeviceToDevice);
    copy<<<1, 16>>>(y, x);
    copy<<<1, 32>>>(y, x);
  }
  if (is("over_written")) {
    cudaMemset(y, 0, 128);
    cudaMemcpy((char*)y + 3, (char*)x + 1, 64, cudaMemcpyDeviceToDevice);
    copy<<<1, 32>>>(y, x);
  }
  if (is("device_to_host")) {
    cudaMemcpy(host, x, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(x, host, bytes, cudaMemcpyHostToDevice);
    copy<<<1, 32>>>(x, y);
  }
  if (is("freed")) {
    cudaMemset(x, 0, bytes);
    cudaFree(x);
    cudaMalloc(&x, bytes);
    copy<<<1, 32>>>(x, y);
  }
  int *managed, *by_system;
  cudaMallocManaged(&managed, 128);
  cudaMallocManaged(&by_system, 128);
  if (is("managed")) {
    for (int i = 0; i < 31; ++i) managed[i] = -1;
    copy<<<1, 32>>>(managed, y);
  }
  if (is("managed_by_memcpy")) memcpy(managed, host, words[1] ? 128 : 0), copy<<<1, 32>>>(managed, y);
  if (is("managed_by_memset")) memset(managed, -1, words[1] ? 128 : 0), copy<<<1, 32>>>(managed, y);
  if (is("managed_from_a_file")) {
    FILE* file = fopen(words[0], "rb");
    const size_t n = fread(by_system, 1, 4, file);
    fclose(file);
    copy<<<1, 1>>>(by_system, y);
    if (n != 4) return 1;
  }
  if (is("mapped")) {
    int* pinned;
    cudaMallocHost(&pinned, 128);
    for (int i = 0; i < 32; ++i) pinned[i] = -1;
    copy<<<1, 32>>>(pinned, y);
    copy<<<1, 32>>>(y, x);
  }
  if (is("structs")) {
    Padded *a, *b;
    Long *c, *d;
    cudaMalloc(&a, 32 * sizeof *a);
    cudaMalloc(&b, 32 * sizeof *b);
    cudaMalloc(&c, 32 * sizeof *c);
    cudaMalloc(&d, 32 * sizeof *d);
    fill_structs<<<1, 32>>>(a, c);
    copy_structs<<<1, 32>>>(a, b, c, d);
    copy_structs<<<1, 32>>>(b, a, d, c);
  }
  return cudaDeviceSynchronize();
}
)";

size_t line_with(const std::string& mark) {
  const size_t at = program.find(mark);
  return size_t(std::count(program.begin(), program.begin() + ptrdiff_t(at), '\n')) + 1;
}

TEST(SimtTryUnwritten, GlobalMemoryIsNamedWhereItIsRead) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "unwritten.cu";
  write_text(file, program);
  const std::string run = build_folder() + "/try/programs/run/unwritten ";
  const Ended made = shell("env -u MAKEFLAGS -u MAKELEVEL make -s try BUILD=" + build_folder() +
                           " FILE=" + file + " ARGS=first_read");
  const auto names = [&](const Ended& end, const std::string& what, const std::string& mark,
                         unsigned thread) {
    EXPECT_NE(end.code, 0);
    EXPECT_TRUE(has(end.output, ": " + what.substr(0, what.find(' ')) +
                                    " is read but was never written\n  " +
                                    what.substr(what.find(' ') + 1) + " at " + file + ":" +
                                    std::to_string(line_with(mark)) + " by thread (" +
                                    std::to_string(thread) + ",0,0) of block (0,0,0)\n"));
    EXPECT_TRUE(has(end.output, "simt: 1 place that reads memory that was never written\n"));
  };
  names(made, "x[0] read", "// element", 0);
  names(shell(run + "atomic"), "sum[0] atomic", "// atomic", 0);
  names(shell(run + "partly"), "x[31] read", "// element", 31);
  names(shell(run + "half_a_word"), "x[31] read", "// element", 31);
  names(shell(run + "half_words"), "x[0] read", "// element", 0);
  names(shell(run + "bytes"), "x[7] read", "void copy_bytes", 31);
  names(shell(run + "half_a_vector"), "x[126] read", "void copy4", 31);
  names(shell(run + "asynchronous"), "x[0] read", "// asynchronous", 0);
  names(shell(run + "memcpy_of_unwritten"), "x[0] read", "void by_memcpy", 0);
  names(shell(run + "device_to_device"), "y[16] read", "// element", 16);
  names(shell(run + "over_written"), "y[1] read", "// element", 1);
  names(shell(run + "freed"), "x[0] read", "// element", 0);
  names(shell(run + "managed"), "managed[31] read", "// element", 31);
  for (const std::string silent :
       {"written", "copied", "by_a_kernel", "three_of_four", "by_memcpy", "device_to_host",
        "managed_by_memcpy", "managed_by_memset", "managed_from_a_file", "mapped", "structs"}) {
    const Ended end = shell(run + silent);
    EXPECT_EQ(end.code, 0) << silent << ": " << end.output;
    EXPECT_EQ(end.output, "") << silent;
  }
}

}  // namespace
}  // namespace bv::test
