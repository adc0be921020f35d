// bench/gpu_check with programs that pretend: what it leaves when its time is up, or when it is
// killed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

class GpuCheck : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("bench/gpu_check")) GTEST_SKIP() << "not started in the checkout";
    for (const char* room : {"bench", "build"}) std::filesystem::create_directory(folder_ / room);
    std::filesystem::copy_file("bench/gpu_check", folder_ / "bench/gpu_check");
    script("build/bench", "echo 'H100, 80 GiB, sm_90'");
    script("build/launcher", "exit 1");
    script("build/nvidia-smi", "echo GPU 0");
    script("build/tests",
           "echo '[       OK ] KernelTable/cuda.gelu (1 ms)'\n"
           "case $* in *TrainingOn*) sleep 30;; esac\n"
           "echo '[  PASSED  ] 1 test.'");
  }
  void script(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" + text + "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  // Its two reports.
  std::string report_of(const std::string& before, const std::string& words) const {
    const std::string call = "cd " + folder_.path() + " && PATH=$PWD/build:$PATH " + before +
                             " bench/gpu_check " + words + " >/dev/null 2>&1";
    code_ = std::system(call.c_str()) / 256;
    const std::string name = folder_ / "bench/results/gpu-check-H100";
    return contents(name + ".txt") + contents(name + ".json");
  }
  TemporaryFolder folder_;
  mutable int code_ = 0;
};

TEST_F(GpuCheck, LeavesWhatItHasFoundWhenItIsKilled) {
  const std::string report = report_of("timeout -s KILL 4", "");
  EXPECT_TRUE(has(report, "small                     1       0")) << report;
  EXPECT_TRUE(has(report, "\"step\": \"small\", \"passed\": 1")) << report;
}

TEST_F(GpuCheck, EndsByItselfInTime) {
  const std::string report = report_of("timeout 20", "--only small,training,bench --seconds 3");
  EXPECT_TRUE(has(report, "not finished: out of time")) << report;
  EXPECT_TRUE(has(report, "no time for: bench-")) << report;
  EXPECT_FALSE(has(report, "memcheck")) << report;
  EXPECT_EQ(code_, 0);
}

}  // namespace
}  // namespace bv::test
