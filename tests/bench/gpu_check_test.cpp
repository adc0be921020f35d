// bench/gpu_check with programs that pretend: what it leaves when its time is up, or when it is
// interrupted or killed, and what it says of a wrong call.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

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
           "case $* in *TrainingOn*) trap '' TERM; sleep 30;; esac\n"  // as one that hangs
           "echo '[  PASSED  ] 1 test.'");
  }
  void script(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" + text + "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  // Its two reports.
  std::string report_of(const std::string& before, const std::string& words) const {
    const std::string call = "cd " + folder_.path() + " && TMPDIR=$PWD PATH=$PWD/build:$PATH " +
                             before + " bench/gpu_check " + words + " >said 2>&1";
    code_ = std::system(call.c_str()) / 256;
    const std::string name = folder_ / report_;
    return contents(name + ".txt") + contents(name + ".json");
  }
  // The same, of a check whose step `small` passes one test, ends the check by `kill WORDS PID` and
  // sleeps.
  std::string report_when(const std::string& kill, const std::string& words) const {
    script("build/tests",
           "echo '[       OK ] KernelTable/cuda.gelu (1 ms)'\n"
           "echo $$ >step\n"
           "kill " +
               kill +
               "$(cat check)\n"
               "exec sleep 30");
    // In a group of its own; a signal that this test was started without is let through.
    return report_of("env --default-signal setsid -w sh -c 'echo $$ >check && exec \"$0\" \"$@\"'",
                     words);
  }
  bool step_lives() const { return ::kill(std::stoi(contents(folder_ / "step")), 0) == 0; }
  std::string said() const { return contents(folder_ / "said"); }
  std::string report_ = "bench/results/gpu-check-H100";
  TemporaryFolder folder_;
  mutable int code_ = 0;
};

TEST_F(GpuCheck, LeavesWhatItHasFoundWhenItIsKilled) {
  const std::string report = report_of("timeout -s KILL 4", "");
  EXPECT_TRUE(has(report, "small                     1       0")) << report;
  EXPECT_TRUE(has(report, "\"step\": \"small\", \"passed\": 1")) << report;
}

TEST_F(GpuCheck, EndsTheRunningStepWhenItIsInterrupted) {
  const struct {
    std::string kill;
    int code;
  } cases[] = {{"-INT ", 130}, {"-INT -", 130}, {"-TERM ", 143}, {"-HUP -", 129}};
  for (const auto& [kill, code] : cases) {
    SCOPED_TRACE("kill " + kill + "PID");
    const std::string report = report_when(kill, "--only small,memcheck");
    EXPECT_EQ(code_, code);
    EXPECT_FALSE(step_lives());
    EXPECT_TRUE(has(report, "small                     1       0")) << report;
    EXPECT_TRUE(has(report, "\"result\": \"not finished: interrupted\"")) << report;
    EXPECT_TRUE(has(report, "interrupted before: memcheck\n")) << report;
  }
}

TEST_F(GpuCheck, LeavesItsHeadAndNoStepWhenItIsKilledInTheFirst) {
  const std::string report = report_when("-KILL ", "");
  EXPECT_TRUE(has(report, "step                 passed")) << report;
  EXPECT_TRUE(has(report, "\"steps\": []")) << report;
  for (int i = 0; i < 1000 && step_lives(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(step_lives());
}

TEST_F(GpuCheck, OneLineSaysWhatIsWrongWithACall) {
  EXPECT_EQ(report_of("", "--only small,nosuch"), "");
  EXPECT_EQ(code_, 2);
  EXPECT_TRUE(
      has(said(), "gpu-check: --only nosuch: no step begins so; known are: small memcheck"));
  EXPECT_EQ(report_of("", "nosuch"), "");
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(said(),
            "gpu-check: nosuch/bench: no such program; build it by: "
            "make BUILD=nosuch all nosuch/bench nosuch/tests\n");
}

TEST_F(GpuCheck, LeavesTwoFilesOfTheSameStepsWhenItIsKilledAsItWritesThem) {
  script("build/bench",
         "while [ $# -gt 1 ]; do [ $1 != --json ] || echo '{}' >$2; shift; done\n"
         "echo 'H100, 80 GiB, sm_90'");
  script("build/cat", "case $* in */bench-*) kill -KILL $PPID ;; esac\nexec /bin/cat \"$@\"");
  report_of("", "--only small,bench");
  const std::string text = contents(folder_ / (report_ + ".txt")),
                    json = contents(folder_ / (report_ + ".json"));
  EXPECT_TRUE(has(text, "small"));
  EXPECT_TRUE(has(json, "small"));
  EXPECT_TRUE(nlohmann::json::accept(json)) << json;
  EXPECT_EQ(text.find("bench-") == text.npos, json.find("bench-") == json.npos) << text << json;
}

TEST_F(GpuCheck, ARehearsalRunsOnTheStandInAtSmallSizes) {
  report_ = "build/gpu-check-simt";
  script("build/launcher",
         "echo \"$*\" >>launched\n"
         "while [ $# -gt 1 ]; do [ $1 != --out ] || out=$2; shift; done\n"
         "[ -z \"$out\" ] || { mkdir -p $out &&"
         " echo '{\"kind\":\"step\",\"loss\":1,\"images_per_second\":7}' >$out/metrics.jsonl; }");
  const std::string report = report_of("", "--device simt --only small,speed-tiny");
  EXPECT_TRUE(has(report, "speed-tiny                1       0")) << report;
  EXPECT_TRUE(has(report, "7 images/s, bf16")) << report;
  const std::string launched = contents(folder_ / "launched");
  EXPECT_TRUE(has(launched, "--image-size 32 --batch 8 --precision bf16 --steps 2 --device simt"))
      << launched;
  EXPECT_EQ(code_, 0);
}

TEST_F(GpuCheck, EndsByItselfInTime) {
  const std::string report = report_of("timeout 20", "--only small,training,bench --seconds 5");
  EXPECT_TRUE(has(report, "not finished: out of time")) << report;
  EXPECT_TRUE(has(report, "no time for: bench-")) << report;
  EXPECT_FALSE(has(report, "memcheck")) << report;
  EXPECT_EQ(code_, 0);
}

}  // namespace
}  // namespace bv::test
