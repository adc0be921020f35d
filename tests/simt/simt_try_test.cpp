// make try: CUDA's own syntax on the stand-in, the examples with their planted bugs, and gdb.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::string make_try(const std::string& words) {
  return "env -u MAKEFLAGS -u MAKELEVEL make -s try BUILD=" + build_folder() + " " + words;
}

struct Example {
  std::string program;
  int code;
  std::vector<std::string> says;
};
void PrintTo(const Example& e, std::ostream* out) { *out << e.program; }

const std::string folder = "learn/examples/";
const Example examples[] = {
    {"vector_add", 0, {"vector_add: c[999] = 2997, 0 of 1000 wrong\n"}},
    {"vector_add.FORGET_THE_END",
     1,
     {"is 0 bytes past the end of an allocation of 4000 bytes made by cudaMalloc\n",
      "simt: " + folder + "vector_add.cu:11: a read of 4 bytes where it owns none\n",
      "simt: vector_add: block (7,0,0): thread (104,0,0)"}},
    {"reduction", 0, {"0 + 1 + ... + 999 = 499500, should be 499500\n"}},
    {"reduction.FORGET_BARRIER",
     1,
     {"simt: block_sums: a race for partial[1]: no __syncwarp() or barrier between them\n"
      "  read at " +
          folder +
          "reduction.cu:25 by thread (0,0,0) of block (0,0,0) and\n"
          "  write at " +
          folder + "reduction.cu:25 by thread (1,0,0) of block (0,0,0)\n",
      "0 + 1 + ... + 999 = 14844, should be 499500\n"}},
    {"reduction.BARRIER_IN_A_BRANCH",
     1,
     {"block_sums: block (0,0,0): thread (0,0,0) waits at " + folder + "reduction.cu:22:",
      "but thread (128,0,0) has ended: all threads of the block must reach it\n"}},
    {"precision",
     0,
     {"0.01 added 1000 times:     in bf16 4, in fp32 10\n",
      "a gradient of 1e-8:        in fp16 0, scaled by 65536 1e-08, in bf16 1e-08\n"}},
    {"matrix_product",
     0,
     {"matrix_product: 0 of 9216 wrong; turns to store a column of a_tile: 32\n"}},
    {"matrix_product.PAD",
     0,
     {"matrix_product: 0 of 9216 wrong; turns to store a column of a_tile: 1\n"}},
    {"matrix_product.FORGET_BARRIER",
     1,
     {"matrix_product: a race for b_tile[0][0]: no barrier between them\n  write at " + folder +
          "matrix_product.cu:38 by thread (0,0,0) of block (0,0,0) and\n  read at " + folder +
          "matrix_product.cu:40 by thread (0,1,0) of block (0,0,0)\n",
      "matrix_product: 9063 of 9216 wrong", "simt: 2 races\n"}},
};

class SimtExamples : public testing::TestWithParam<Example> {};
TEST_P(SimtExamples, Prints) {
  const std::string program = build_folder() + "/try/examples/" + GetParam().program;
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "not built: make test builds them";
  const Ended end = shell(program);
  // ASan's exit code differs from the programs' own.
  EXPECT_EQ(end.code, GetParam().code) << end.output;
  for (const std::string& words : GetParam().says) EXPECT_TRUE(has(end.output, words));
}
INSTANTIATE_TEST_SUITE_P(All, SimtExamples, testing::ValuesIn(examples), [](const auto& example) {
  std::string name = example.param.program;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(SimtTry, AllExamplesAreTested) {
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "not in the project's folder";
  for (const std::string& name : names_in(folder)) {
    const auto is_of = [&](const Example& e) { return e.program + ".cu" == name; };
    EXPECT_TRUE(std::any_of(std::begin(examples), std::end(examples), is_of)) << name;
  }
}

// The first program of simt/README.md, and the output that the page shows.
TEST(SimtTry, TheFirstProgramOfTheReadme) {
  if (!std::filesystem::exists("simt/README.md")) GTEST_SKIP() << "not in the project's folder";
  const std::string page = contents("simt/README.md"), call = "    $ make try FILE=square.cu\n    ";
  const size_t begin = page.find("    #include <cstdio>"), end = page.find(call, begin);
  ASSERT_NE(end, page.npos);
  const TemporaryFolder scratch;
  write_text(scratch / "square.cu", page.substr(begin, end - begin));
  const size_t says = end + call.size();
  EXPECT_EQ(shell(make_try("FILE=" + scratch / "square.cu")).output,
            page.substr(says, page.find('\n', says) + 1 - says));
}

// Every line is CUDA that nvcc accepts. The argument chooses a bug.
const std::string cases = R"(#include <cstdio>
#include "constants.h"
template <class A, class B>
__global__ void typed(A a, B b, int* out) {
  __shared__ A first[2], second[2][3];  // __shared__ int not_this;
  first[threadIdx.x] = a, second[threadIdx.x][2] = first[threadIdx.x] + b;
  __syncthreads();
  out[threadIdx.x] = second[1 - threadIdx.x][2];
}
__global__ void dynamic(int* out) {
  extern __shared__ int all[];
  all[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] += all[blockDim.x - 1 - threadIdx.x];
}
__global__ void misaligned(float* x) { *reinterpret_cast<float4*>(x + 1) = {}; }
__global__ void write(float* x) { x[threadIdx.x] = 1; }
__global__ void beyond_shared() {
  __shared__ float tile[32];
  float* p = tile;
  p[threadIdx.x + 1] = 1;
}
__global__ void too_much_shared() {
  __shared__ double a[100][64];
  a[0][0] = 1;
}
int main(int, char** words) {
  int out[2], *gpu;
  float host[32];
  cudaMalloc(&gpu, sizeof out);
  switch (words[1][0]) {
    case 'g':
      typed<int, float><<<dim3(1),
                          two>>>(5, 2.f, gpu);  // typed<<<1, 2>>>
      dynamic<<<1, 2, 2 * sizeof(int)>>>(gpu);
      cudaMemcpy(out, gpu, sizeof out, cudaMemcpyDeviceToHost);
      printf("typed<<<1, 2>>> %d %d\n", out[0], out[1]);
      break;
    case 'm': misaligned<<<1, 1>>>((float*)gpu); break;
    case 'h': write<<<1, 1>>>(host); break;
    case 'l': write<<<1, 2048>>>((float*)gpu); break;
    case 's': beyond_shared<<<1, 32>>>(); break;
    case 'b': too_much_shared<<<1, 1>>>(); break;
    case 'd': dynamic<<<1, 1>>>(gpu); break;
    case 'w': *gpu = 1; break;
    case 'n': write<<<1, 1>>>((float*)gpu); return 0;
  }
  cudaDeviceSynchronize();
}
)";

TEST(SimtTry, AnEndlessLoopHasItsLine) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "loop.cu";
  write_text(file, R"(__global__ void spin(volatile float* x, int n) {
  if (threadIdx.x >= n) return;  // signs that differ are no warning of nvcc's
  x[0] = 0;
  while (x[0] < 1) x[1] = 2;
}
int main() {
  float* x;
  cudaMalloc(&x, 8);
  spin<<<1, 2>>>(x, 1);
  cudaDeviceSynchronize();
}
)");
  const Ended end = shell("SIMT_TIMEOUT=1 " + make_try("FILE=" + file));
  EXPECT_TRUE(has(end.output,
                  "simt: spin: block (0,0,0): thread (0,0,0): still running after 1 s of "
                  "processor time (SIMT_TIMEOUT), at " +
                      file + ":4\n"));
  EXPECT_FALSE(has(end.output, "warning")) << end.output;
}

TEST(SimtTry, CudasSyntaxAndEveryKindOfError) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "some cases.cu", name = "some cases";
  write_text(file, cases);
  write_text(scratch / "constants.h", "constexpr int two = 2;\n");
  const Ended good = shell(make_try("FILE='" + file + "' ARGS=g"));
  EXPECT_EQ(good.code, 0);
  EXPECT_TRUE(has(good.output, "typed<<<1, 2>>> 8 7\n"));
  const auto fails = [&](const std::string& word, std::initializer_list<std::string> says) {
    const Ended end = shell("'" + build_folder() + "/try/programs/run/some cases' " + word);
    EXPECT_EQ(end.code, 1) << end.output;
    for (const std::string& words : says) EXPECT_TRUE(has(end.output, words));
  };
  fails("m", {"simt: misaligned: block (0,0,0): thread (0,0,0): undefined behaviour:\n",
              "cases.cu:16:", "which requires 16 byte alignment"});
  fails("h", {"cases.cu:40: invalid argument: an argument points to host memory"});
  fails("l", {"cases.cu:41: invalid configuration argument: a block of (2048,1,1) threads"});
  fails("s", {"cases.cu:21: a write of 4 bytes where it owns none: tile[32]\n",
              "simt: beyond_shared: block (0,0,0): thread (31,0,0)"});
  fails("b", {"simt: too_much_shared: block (0,0,0): thread (0,0,0) comes to 51200 bytes of "
              "__shared__ variables, but a block can have 49152, at ",
              "cases.cu:24:"});
  fails("d", {"dynamic: block (0,0,0): launched with 0 bytes of shared memory, but uses 4"});
  fails("w", {"host code wrote device memory", "cases.cu:45: a write where it owns no memory"});
  fails("n", {"cases.cu:46: write was launched but never ran: nothing waited for it "
              "(cudaDeviceSynchronize)"});
}

TEST(SimtTry, AFileThatIsNotThere) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const Ended missing = shell(make_try("FILE=nowhere.cu")), none = shell(make_try(""));
  EXPECT_EQ(missing.code, 2);
  EXPECT_TRUE(has(missing.output, "try: nowhere.cu: no such file\n"));
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.output, "try: which file? for example: make try FILE="));
}

TEST(SimtTry, ADefineThatNothingReads) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const Ended slip = shell(make_try("FILE=" + folder + "reduction.cu DEFINE=FORGET_BARIER"));
  EXPECT_EQ(slip.code, 2);
  EXPECT_TRUE(has(slip.output, "try: nothing in " + folder +
                                   "reduction.cu reads FORGET_BARIER; it has BARRIER_IN_A_BRANCH "
                                   "FORGET_BARRIER\n"));
  const Ended option = shell(make_try("FILE=" + folder + "reduction.cu DEFINE=-DX"));
  EXPECT_EQ(option.code, 2);
  EXPECT_TRUE(option.output.starts_with("try: nothing in ")) << option.output;
}

TEST(SimtTry, ConstantMemory) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "weigh.cu";
  write_text(file, R"(#include <cstdio>
__constant__ float weights[3], zero;
__constant__ int offsets[2][2] = {{1, 2}, {3, 4}};  // __constant__ int not_this;
static __constant__ double scale = SCALE;
__global__ void weigh(float* out) {
  const float4 three = make_float4(offsets[1][0], 0, 0, 0);
  out[threadIdx.x] = scale * weights[threadIdx.x] + three.x + zero * __expf(1) * __cosf(0);
}
int main(int words, char**) {
  float host[3] = {1, 2, 3}, *out;
  cudaMalloc(&out, sizeof host);
  cudaMemcpyToSymbol(weights, host, sizeof host);
  weigh<<<1, 3>>>(out);
  cudaMemcpyFromSymbol(host, weights, sizeof(float), sizeof(float));
  printf("%g: ", host[0]);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  printf("%g %g %g\n", host[0], host[1], host[2]);
  return words > 1 ? int(weights[0]) : 0;
}
)");
  const Ended good = shell(make_try("FILE=" + file + " DEFINE=SCALE=2"));
  EXPECT_EQ(good.output, "2: 5 7 9\n");
  const Ended host = shell(make_try("FILE=" + file + " DEFINE=SCALE=2 ARGS=read"));
  EXPECT_TRUE(has(host.output, "host code read device memory: "));
  EXPECT_TRUE(has(host.output, "weigh.cu:18: a read where it owns no memory"));
}

TEST(SimtTry, WhatTheStandInLacksIsNamedInOneLine) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "left_out.cu";
  const auto says = [&](const std::string& code, const std::string& line) {
    write_text(file, code);
    const Ended end = shell(make_try("FILE=" + file));
    EXPECT_EQ(end.code, 2);
    EXPECT_EQ(end.output.substr(0, end.output.find("make: ")), line + "\n");
  };
  const std::string at = "try: " + file;
  says(
      "__global__ void add(float* x) {\n  atomicAdd(x, 1.f);\n  asm volatile(\"bar.sync 0;\");\n"
      "  atomicAdd(x, 2.f);\n}\nint main() { cudaMemcpy2D(0, 0, 0, 0, 0, 0, "
      "cudaMemcpyDeviceToHost); }\n",
      at +
          ":2: the stand-in lacks atomicAdd: atomics are for integers of 4 and 8 bytes: sums of "
          "floats would depend on the order\n" +
          at +
          ":3: the stand-in lacks asm: inline PTX is left out; kernels/cuda/ptx.cuh has cp.async, "
          "ldmatrix and mma\n" +
          at + ":6: the stand-in lacks cudaMemcpy2D: copies have one dimension: cudaMemcpy");
  says("__global__ void f(int* x) { atomicAdd(x[0], 1); }\nint main() {}\n",
       at + ":1: the first argument of atomicAdd is the address of a number: &x, not x");
  says(
      "#include <cstdint>\nstruct Pair {\n  int a, b;\n};\n__global__ void f(int i, float x, Pair "
      "p, "
      "uint64_t* sum) {\n  min(i, x);\n  __shfl_sync(~0u, p, 0);\n  atomicAdd(sum, 1);\n}\n"
      "int main() {}\n",
      at +
          ":6: several overloads of min take (int&, float&), for nvcc, too: convert an argument\n" +
          at + ":7: no overload of __shfl_sync takes (unsigned int, Pair&, int)\n" + at +
          ":8: CUDA has no atomicAdd for uint64_t: it has int, unsigned int and unsigned long "
          "long, "
          "and for some operations long long");
  says("#include <cooperative_groups.h>\nint main() {}\n",
       at + ":1: the stand-in lacks cooperative_groups.h: cooperative groups are left out; "
            "__syncthreads() and __syncwarp() are there");
  says("__global__ void f() {}\n", at + " has no main(): make try runs whole programs");
}

// g++'s own messages are shown: the file is at fault, not the stand-in.
TEST(SimtTry, AFileThatDoesNotCompile) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "slip.cu";
  write_text(file, "int main() {\n  return exit_code;\n}\n");
  const Ended end = shell(make_try("FILE=" + file));
  EXPECT_EQ(end.code, 2);
  EXPECT_TRUE(has(end.output, file + ":2:10: error: 'exit_code' was not declared in this scope"));
}

TEST(SimtTry, AFileWithoutAKernel) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  write_text(scratch / "none.cu", "int main() {}\n");
  const Ended end = shell(make_try("FILE=" + (scratch / "none.cu")));
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.output, "simt: no kernel was launched\n");
}

// A tutorial that many start with; an argument leaves out its wait.
TEST(SimtTry, ManagedMemory) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "first.cu";
  write_text(file, R"(#include <cstdio>
__managed__ int calls;
__global__ void add(int n, float* x, float* y) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + y[i];
  if (threadIdx.x == 0) ++calls;
}
int main(int words, char**) {
  const int n = 1000;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) x[i] = 1, y[i] = 2;
  cudaMemPrefetchAsync(x, n * sizeof(float), 0);
  add<<<1, 256>>>(n, x, y);
  if (words == 1) cudaDeviceSynchronize();
  const float last = y[n - 1];
  cudaFree(x);
  printf("%g, %d call\n", last, calls);
}
)");
  const Ended good = shell(make_try("FILE=" + file));
  EXPECT_EQ(good.output, "3, 1 call\n");
  const Ended early = shell(make_try("FILE=" + file + " ARGS=early"));
  EXPECT_EQ(early.code, 2);
  EXPECT_TRUE(has(early.output, "2, 1 call\n"));
  EXPECT_TRUE(has(early.output,
                  "simt: add: a race for y[999]: nothing waited for the kernel "
                  "(cudaDeviceSynchronize)\n  read at " +
                      file + ":16 by the host and\n  write at " + file + ":4 by thread (231,0,0)"));
}

TEST(SimtTry, TheProjectsOwnHeaders) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  write_text(scratch / "total.cu", R"(#include <cstdio>
#include "kernels/cuda/reduce.cuh"
using namespace bv::BAREVISION_GPU;
struct Scratch {
  int sums[8];
};
__global__ void total(int* x) {
  const int sum = block_sum<256>(int(threadIdx.x), shared<Scratch>().sums);
  if (threadIdx.x == 0) *x = sum;
}
int main() {
  int *x, sum = 0;
  check(cudaMalloc(&x, sizeof sum), "x");
  launch<total>(1, 256, sizeof(Scratch), nullptr, x);
  cudaMemcpy(&sum, x, sizeof sum, cudaMemcpyDeviceToHost);
  printf("%d\n", sum);
}
)");
  EXPECT_EQ(shell(make_try("FILE=" + (scratch / "total.cu"))).output, "32640\n");
}

// Reads of shared memory that was never written, races for a variable of the program, and how many
// accesses are watched.
TEST(SimtTry, OtherRaces) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "others.cu";
  write_text(file, R"(__device__ int count;
__global__ void unwritten(int* x) {
  __shared__ int tile[4][8];
  if (threadIdx.x < 31) tile[threadIdx.x / 8][threadIdx.x % 8] = 1;
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];
}
__global__ void counts() { count = count + 1; }
__global__ void many(int* x) {
  for (int i = 0; i < 100000; ++i) x[threadIdx.x] = i;
}
int main(int, char** words) {
  int* x;
  cudaMalloc((void**)&x, 128);
  if (words[1][0] == 'u') unwritten<<<1, 32>>>(x);
  if (words[1][0] == 'c') counts<<<2, 1>>>();
  if (words[1][0] == 'm') many<<<1, 32>>>(x);
  cudaDeviceSynchronize();
}
)");
  const Ended unwritten = shell(make_try("FILE=" + file + " ARGS=u"));
  EXPECT_EQ(unwritten.code, 2);
  EXPECT_TRUE(has(unwritten.output,
                  "simt: unwritten: tile[3][7] is read but was never written\n"
                  "  read at " +
                      file + ":6 by thread (31,0,0) of block (0,0,0)\n"));
  const std::string program = build_folder() + "/try/programs/run/others ";
  EXPECT_TRUE(has(shell(program + "c").output,
                  "simt: counts: a race for count: no fence and atomic between these blocks\n"
                  "  write at " +
                      file + ":8 by thread (0,0,0) of block (0,0,0) and\n  read at " + file +
                      ":8 by thread (0,0,0) of block (1,0,0)\n"));
  const Ended many = shell("SIMT_RACES=1 " + program + "m");
  EXPECT_EQ(many.code, 0);
  EXPECT_EQ(many.output,
            "simt: no race found, but only the first 1 million accesses were watched "
            "(SIMT_RACES)\n");
}

TEST(SimtTry, GdbSeesTheThreadsOfABlock) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  if (shell("command -v gdb").code != 0) GTEST_SKIP() << "gdb is not installed";
  const TemporaryFolder scratch;
  write_text(scratch / "words", R"(break reduction.cu:27 if threadIdx.x == 5
run
print threadIdx
info cuda kernels
info cuda threads
cuda lanes threadIdx.x + partial[t]
cuda thread (100,0,0)
print t + threadIdx.x
cuda lanes t
next
print t
cuda thread 300
cuda block
cuda block (1,0,0)
cuda thread 1
delete
continue
cuda lanes 1
)");
  const Ended end =
      shell(make_try("FILE=" + folder + "reduction.cu DEBUG=1 <" + (scratch / "words")));
  if (end.output.find("ptrace") != std::string::npos) GTEST_SKIP() << "gdb may not trace here";
  for (const std::string words :
       {"$1 = {x = 5, y = 0, z = 0}",
        "block_sums: grid (4,1,1) of blocks (256,1,1); block (0,0,0), thread (5,0,0)\n",
        "threads 0-4 at reduction.cu:27, waits\nthread 5 at reduction.cu:27\n"
        "threads 6-255 at reduction.cu:17, waits\n",
        " 0-7   128 131 134 137 140 143  12  14\n 8-15   16 ",
        "lanes 6-31 at reduction.cu:17, waits\n", "thread (100,0,0) at reduction.cu:17, waits\n",
        "$2 = 200\n",
        "24-31  120 121 122 123 124 125 126 127\nlanes 0-31 at reduction.cu:17, waits\n",
        "$3 = 5\n", "cuda: no thread 300 in a block of (256,1,1)\n", "block (0,0,0)\n",
        "cuda: block (0,0,0) runs alone; to stop in another: break LINE if blockIdx.x == 1\n",
        "thread (1,0,0) at reduction.cu:27, waits\n", "= 499500, should be 499500\n",
        "exited normally", "cuda: "})
    EXPECT_TRUE(has(end.output, words)) << words << "\nisn't in\n" << end.output;
}

// The other lanes wait in the shuffle of a function that the kernel calls.
TEST(SimtTry, GdbShowsTheSameVariableInAllLanes) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  if (shell("command -v gdb").code != 0) GTEST_SKIP() << "gdb is not installed";
  const TemporaryFolder scratch;
  write_text(scratch / "sums.cu", R"(__device__ int sum(int x) {
  for (int bits = 16; bits; bits /= 2) x += __shfl_xor_sync(~0u, x, bits);
  return x;
}
__global__ void sums(int* out) {
  const int mine = 2 * threadIdx.x;
  const int total = sum(mine);
  out[threadIdx.x] = total;
}
int main() {
  int* out;
  cudaMalloc(&out, 32 * sizeof *out);
  sums<<<1, 32>>>(out);
  return cudaDeviceSynchronize();
}
)");
  write_text(scratch / "words", "break 8\nrun\ncuda lanes mine\ncuda lanes nothing\nkill\n");
  const Ended end =
      shell(make_try("FILE=" + (scratch / "sums.cu") + " DEBUG=1 <" + (scratch / "words")));
  if (end.output.find("ptrace") != std::string::npos) GTEST_SKIP() << "gdb may not trace here";
  EXPECT_TRUE(has(end.output, "24-31  48 50 52 54 56 58 60 62\nlane 0 at sums.cu:8\n"));
  EXPECT_TRUE(has(end.output, "lanes 1-31 at sums.cu:7, waits\n"));
  EXPECT_TRUE(has(end.output, "cuda: No symbol \"nothing\" in current context."));
}

// compile_commands.json, for editors.
TEST(SimtTry, EditorsKnowHowEveryFileIsCompiled) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const Ended made = shell(
      "env -u MAKEFLAGS -u MAKELEVEL make -s CUDA=0 compile_commands.json BUILD=" + build_folder());
  ASSERT_EQ(made.code, 0) << made.output;
  std::map<std::string, std::string> commands;
  for (const auto& entry : nlohmann::json::parse(contents("compile_commands.json")))
    commands[entry.at("file")] = entry.at("command");
  EXPECT_TRUE(has(commands["kernels/training/loss.cu"], "-DBAREVISION_GPU=simt_gpu"));
  EXPECT_TRUE(has(commands["kernels/training/loss.cpp"], "-DBAREVISION_ISA=avx2"));
  EXPECT_TRUE(has(commands["engine/options/version.cpp"],
                  "-DBAREVISION_VERSION='\"" BAREVISION_VERSION "\"'"));
  for (const char* room : {"engine", "data", "models", "kernels", "bench"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(room)) {
      const std::string path = entry.path(), kind = entry.path().extension();
      const bool is_source = kind == ".cu" || kind == ".cpp";
      if (!is_source || path == "bench/gpu_device.cpp") continue;  // which needs CUDA itself
      EXPECT_TRUE(commands.contains(path)) << path;
    }
}

}  // namespace
}  // namespace bv::test
