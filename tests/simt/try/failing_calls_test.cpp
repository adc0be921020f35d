// make try: calls of the runtime that fail, and whose error nobody has asked for. One program with
// all cases; its argument chooses one.
#include <gtest/gtest.h>

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
#include <thread>
__constant__ float weights[3];
__global__ void fill(int* x) { x[threadIdx.x] = 1; }
int main(int, char** words) {
  int host[4] = {}, *x;
  float w[4] = {};
  cudaMalloc(&x, sizeof host);
  const auto is = [&](const char* name) { return !strcmp(words[1], name); };
  if (is("size")) cudaMemcpy(x, host, 2 * sizeof host, cudaMemcpyHostToDevice);
  if (is("kind")) cudaMemcpy(x, host, sizeof host, cudaMemcpyDeviceToHost);
  if (is("symbol")) cudaMemcpyToSymbol(weights, w, sizeof w);
  if (is("free")) cudaFree(host);
  if (is("set")) cudaMemset(host, 0, sizeof host);
  if (is("set_too_much")) cudaMemset(x, 0, 100);
  if (is("malloc")) cudaMalloc(&x, size_t{1} << 60);
  if (is("thread")) std::thread([&] { cudaFree(host); }).join();
  if (is("several")) {
    cudaMemset(x, 0, 17);
    cudaFree(host);
    fill<<<1, 2000>>>(x);
    cudaMemset(x, 0, 18);
  }
  if (is("with_a_launch")) {
    fill<<<1, 4>>>(x);
    cudaMemcpy(host, x, 17, cudaMemcpyDeviceToHost);
    cudaDeviceSynchronize();
  }
  if (is("checked")) {
    cudaFree(host);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  }
  if (is("checked_then_missed")) {
    cudaFree(host);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    cudaMemset(x, 0, 19);
  }
  if (is("not_ready")) {
    cudaMemset(x, 0, 16);
    while (cudaStreamQuery(nullptr) == cudaErrorNotReady) {
    }
    fill<<<1, 4>>>(x);
    cudaDeviceSynchronize();
  }
  if (is("own_code")) {
    cudaFree(host);
    return 3;
  }
}
)";

TEST(SimtTryFailingCalls, TheFirstIsNamed) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  const TemporaryFolder scratch;
  const std::string file = scratch / "calls.cu";
  write_text(file, program);
  const std::string run = build_folder() + "/try/programs/run/calls ";
  const Ended made = shell("env -u MAKEFLAGS -u MAKELEVEL make -s try BUILD=" + build_folder() +
                           " FILE=" + file + " ARGS=size");
  const auto names = [&](const Ended& end, int line, const std::string& call,
                         const std::string& why) {
    EXPECT_NE(end.code, 0);
    EXPECT_TRUE(has(end.output, "simt: " + file + ":" + std::to_string(line) + ": " + call + ": "));
    EXPECT_TRUE(has(end.output, why));
    EXPECT_EQ(end.output.find("no kernel was launched"), end.output.npos);
  };
  names(made, 11, "cudaMemcpy", "of 16 bytes made by cudaMalloc: 32 bytes are too many\n");
  names(shell(run + "kind"), 12, "cudaMemcpy", "a copy from device to host, to 0x");
  names(shell(run + "symbol"), 13, "cudaMemcpyToSymbol", ": 16 bytes are too many\n");
  names(shell(run + "free"), 14, "cudaFree",
        " is not where an allocation made by cudaMalloc begins\n");
  names(shell(run + "set"), 15, "cudaMemset", ", which is host memory and not device memory\n");
  names(shell(run + "set_too_much"), 16, "cudaMemset", ": 100 bytes are too many\n");
  names(shell(run + "malloc"), 17, "cudaMalloc", "out of memory: 1152921504606846976 bytes, but ");
  names(shell(run + "thread"), 18, "cudaFree", " is not where an allocation");
  names(shell(run + "several"), 20, "cudaMemset", ": 17 bytes are too many\n");
  names(shell(run + "with_a_launch"), 27, "cudaMemcpy", ": 17 bytes are too many\n");
  names(shell(run + "checked_then_missed"), 37, "cudaMemset", ": 19 bytes are too many\n");
  const Ended checked = shell(run + "checked"), own = shell(run + "own_code"),
              polled = shell(run + "not_ready");
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(checked.output, "cudaErrorInvalidValue\nsimt: no kernel was launched\n");
  EXPECT_EQ(polled.code, 0);
  EXPECT_EQ(polled.output, "");
  EXPECT_EQ(own.code, 3);
  EXPECT_EQ(own.output, "");
}

}  // namespace
}  // namespace bv::test
