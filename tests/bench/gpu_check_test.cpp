// bench/gpu_check with fake programs: its files after a timeout, an interrupt or a kill, its report
// of failures, and its messages about wrong arguments.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/comm/processes.h"
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
    for (const char* part : {"bench/gpu_check", "bench/check", "bench/measure.py"})
      std::filesystem::copy(part, folder_ / part);
    script("build/bench", "echo 'H100, 80 GiB, sm_90'");
    script("build/launcher", "exit 1");
    script("build/nvidia-smi", "echo GPU 0");
    script("build/tests",
           "echo '[       OK ] KernelTable/cuda.gelu (1 ms)'\n"
           "case $* in *TrainingOn*) trap '' TERM; sleep 30;; esac\n"  // hangs
           "echo '[  PASSED  ] 1 test.'");
  }
  void script(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" + text + "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  // Both report files.
  std::string report_of(const std::string& before, const std::string& words) const {
    const std::string call = "cd " + folder_.path() + " && TMPDIR=$PWD PATH=$PWD/build:$PATH " +
                             before + " bench/gpu_check " + words + " >said 2>&1";
    code_ = std::system(call.c_str()) / 256;
    const std::string name = folder_ / report_;
    return contents(name + ".txt") + contents(name + ".json");
  }
  // The report of a check whose step `small` passes one test, ends the check by `kill WORDS PID`
  // and sleeps.
  std::string report_when(const std::string& kill, const std::string& words) const {
    script("build/tests",
           "echo '[       OK ] KernelTable/cuda.gelu (1 ms)'\n"
           "echo $$ >step\n"
           "kill " +
               kill +
               "$(cat check)\n"
               "exec sleep 30");
    return report_in_a_group(words);
  }
  // The same for a check in a process group of its own, whose id is in the file `check`; signals
  // that this test ignores have their default action there.
  std::string report_in_a_group(const std::string& words) const {
    return report_of("env --default-signal setsid -w sh -c 'echo $$ >check && exec \"$0\" \"$@\"'",
                     words);
  }
  // A process that has ended may still be a zombie that its new parent hasn't reaped.
  bool step_lives() const {
    const char state = state_of(std::stoi(contents(folder_ / "step")));
    return state != 0 && state != 'Z';
  }
  std::string said() const { return contents(folder_ / "said"); }
  std::string report_ = "bench/results/gpu-check-H100";
  TemporaryFolder folder_;
  mutable int code_ = 0;
};

TEST_F(GpuCheck, LeavesWhatItHasFoundWhenItIsKilled) {
  script("build/tests",
         "echo '[       OK ] KernelTable/cuda.gelu (1 ms)'\n"
         "case $* in *TrainingOn*) kill -KILL $(cat check); exec sleep 30;; esac\n"
         "echo '[  PASSED  ] 1 test.'");
  const std::string report = report_in_a_group("");
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
  EXPECT_TRUE(has(report, "\"steps\": [{\"step\": \"hopper\"")) << report;
  EXPECT_FALSE(has(report, "small")) << report;
  EXPECT_TRUE(wait_until([this] { return !step_lives(); }));
}

TEST_F(GpuCheck, OneLineSaysWhatIsWrongWithACall) {
  EXPECT_EQ(report_of("", "--only small,nosuch"), "");
  EXPECT_EQ(code_, 2);
  EXPECT_TRUE(has(said(), "gpu-check: --only nosuch: no step begins so; known are: hopper small"));
  EXPECT_EQ(report_of("", "nosuch"), "");
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(said(),
            "gpu-check: nosuch/bench: no such program; build it by: "
            "make BUILD=nosuch all nosuch/bench nosuch/tests\n");
}

TEST_F(GpuCheck, LeavesTwoWholeFilesWhenItIsKilledAsItWritesThem) {
  script("build/bench",
         "while [ $# -gt 1 ]; do [ $1 != --json ] || echo '{}' >$2; shift; done\n"
         "echo 'H100, 80 GiB, sm_90'");
  write_text(folder_ / "kill/sitecustomize.py",  // Python runs it first
             "import os, signal\n"
             "calls, replace = [], os.replace\n"
             "def counted(*names):\n"
             "    calls.append(names)\n"
             "    if len(calls) == int(os.environ['CALL']): os.kill(os.getpid(), signal.SIGKILL)\n"
             "    replace(*names)\n"
             "os.replace = counted\n");
  // Each report replaces both files: first without a step, then with `small`, then with a bench.
  for (const bool between : {false, true}) {
    SCOPED_TRACE(between ? "between the two" : "before the first");
    report_of("env PYTHONPATH=$PWD/kill CALL=" + std::to_string(between ? 6 : 5),
              "--only small,bench");
    EXPECT_EQ(code_, 128 + SIGKILL);
    const std::string text = contents(folder_ / (report_ + ".txt")),
                      json = contents(folder_ / (report_ + ".json"));
    EXPECT_TRUE(has(text, "small                     1       0       0        0  ok\n"));
    EXPECT_TRUE(has(json, "small"));
    EXPECT_TRUE(nlohmann::json::accept(json)) << json;
    EXPECT_EQ(text.find("bench-") != text.npos, between) << text;
    EXPECT_EQ(json.find("bench-"), json.npos) << json;
  }
}

// Three tests: the first fails, the second has an error found by compute-sanitizer.
const std::string three_tests =
    "cat <<end\n"
    "[ RUN      ] KernelTable/cuda.linear_forward_M17_bf16\n"
    "tests/kernels/kernel_test.cpp:72: Failure\n"
    "Failed\n"
    "out: 187 of 561 elements differ; worst [3, 4]: 0.0058 is not 0.0065 +- 1.2e-05\n"
    "[  FAILED  ] KernelTable/cuda.linear_forward_M17_bf16 (3 ms)\n"
    "[ RUN      ] KernelTable/cuda.layernorm\n"
    "========= COMPUTE-SANITIZER\n"
    "========= Invalid __global__ write of size 4 bytes\n"
    "=========     at layernorm(float *)+0x110 in layernorm.cu:31\n"
    "=========     Saved host backtrace up to driver entry point\n"
    "=========         Host Frame: main\n"
    "=========\n"
    "========= Invalid __global__ read\n"
    "=========\n"
    "========= ERROR SUMMARY: 2 errors\n"
    "[       OK ] KernelTable/cuda.layernorm (3 ms)\n"
    "[ RUN      ] KernelTable/cuda.gelu\n";
const std::string their_summary =
    "[       OK ] KernelTable/cuda.gelu (3 ms)\n"
    "[  PASSED  ] 2 tests.\n"
    "[  FAILED  ] 1 test, listed below:\n"
    "[  FAILED  ] KernelTable/cuda.linear_forward_M17_bf16\n";

TEST_F(GpuCheck, ShowsTheValuesOfWhatFailsAndWhatTheSanitizerFound) {
  script("build/tests", three_tests + their_summary + "end\nexit 9");
  script("build/compute-sanitizer", "shift 4\nexec \"$@\"");
  const std::string report = report_of("", "--only small,memcheck,racecheck");
  EXPECT_EQ(code_, 1);
  for (const std::string& text : {contents(folder_ / (report_ + ".txt")), said()}) {
    EXPECT_TRUE(has(text, "small                     2       1       0        0  FAILED, exit "));
    EXPECT_TRUE(has(text,
                    "  KernelTable/cuda.linear_forward_M17_bf16\n"
                    "    tests/kernels/kernel_test.cpp:72: Failure\n"
                    "    out: 187 of 561 elements differ; worst [3, 4]: 0.0058 is not 0.0065 +- "));
    EXPECT_TRUE(has(text, "FAILED, exit code 9, ERROR SUMMARY: 2 errors\n"));
    EXPECT_TRUE(has(text,
                    "  Invalid __global__ write of size 4 bytes\n"
                    "      at layernorm(float *)+0x110 in layernorm.cu:31\n"
                    "  while KernelTable/cuda.layernorm ran\n"));
    EXPECT_FALSE(has(text, "Host Frame"));
    EXPECT_TRUE(has(text, "the whole log is bench/results/gpu-check-H100/memcheck.log\n"));
  }
  const auto steps = nlohmann::json::parse(contents(folder_ / (report_ + ".json")))["steps"];
  EXPECT_EQ(steps[0]["failures"][0]["test"], "KernelTable/cuda.linear_forward_M17_bf16");
  EXPECT_EQ(steps[1]["finding"][0], "Invalid __global__ write of size 4 bytes");
}

TEST_F(GpuCheck, NamesTheTestInWhichAProgramEnded) {
  script("build/tests", three_tests + "end\nkill -ABRT $$");
  report_of("", "--only small");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(said(), "small                     1       2       0        0  FAILED, exit "));
  EXPECT_TRUE(has(said(),
                  "  KernelTable/cuda.gelu\n"
                  "    the program ended in it, with exit code 134\n"));
}

TEST_F(GpuCheck, KeepsEachStepsWholeLog) {
  write_text(folder_ / (report_ + "/older.log"), "of an older check\n");
  script("build/tests", three_tests + their_summary + "end\nexit 9");
  script("build/launcher", "echo \"launched $*\"\necho 'out of memory' >&2\nexit 3");
  report_of("", "--only small,speed-tiny");
  const std::string whole = three_tests.substr(8) + their_summary;  // without "cat <<end"
  EXPECT_EQ(contents(folder_ / (report_ + "/small.log")),
            "$ BAREVISION_TEST_SMALL=1 build/tests --gtest_color=no "
            "'--gtest_filter=KernelTable/cuda.*'\n" +
                whole.substr(whole.find('[')));
  const std::string speed = contents(folder_ / (report_ + "/speed-tiny.log"));
  EXPECT_TRUE(has(speed, "$ build/launcher vit_tiny --data synthetic"));
  EXPECT_TRUE(has(speed, "\nlaunched vit_tiny --data synthetic"));
  EXPECT_TRUE(has(speed, "\nout of memory\n"));
  EXPECT_TRUE(has(said(), "FAILED: exit code 3: out of memory\n"));
  EXPECT_EQ(contents(folder_ / (report_ + "/older.log")), "");
  EXPECT_TRUE(has(said(), "logs      " + report_ + ": small.log, speed-tiny.log\n"));
}

TEST_F(GpuCheck, ShowsTheLossesThatLieApart) {
  script("build/launcher",
         "loss=1.5\n"
         "case $* in *'-n 2'*) loss=$(cat loss) ;; esac\n"
         "while [ $# -gt 1 ]; do [ $1 != --out ] || out=$2; shift; done\n"
         "[ -n \"$out\" ] || exit 0\n"
         "mkdir -p $out\n"
         "echo '{\"kind\":\"step\",\"step\":1,\"loss\":2}' >$out/metrics.jsonl\n"
         "echo '{\"kind\":\"step\",\"step\":2,\"loss\":'$loss'}' >>$out/metrics.jsonl");
  const struct {
    std::string loss, said;
    int code;
  } cases[] = {
      {"1.25", "FAILED: largest difference of losses 0.25, over 0.001; the first at step 2: 1.5 ",
       1},
      {"NaN", "FAILED: largest difference of losses nan, over 0.001; the first at step 2: 1.5 ", 1},
      {"null", "FAILED: one has 2 losses, several 2, or one that is not a number", 1},
      {"1.5005", "largest difference of losses 0.0005\n", 0}};
  for (const auto& [loss, line, code] : cases) {
    write_text(folder_ / "loss", loss);
    report_of("", "--only shared-gpu");
    EXPECT_TRUE(has(said(), line));
    EXPECT_EQ(code_, code);
  }
}

TEST_F(GpuCheck, ARehearsalRunsOnTheStandInAtSmallSizes) {
  report_ = "build/gpu-check-simt";
  script("build/launcher",
         "echo \"$*\" >>launched\n"
         "while [ $# -gt 1 ]; do [ $1 != --out ] || out=$2; shift; done\n"
         "[ -z \"$out\" ] || { mkdir -p $out &&"
         " echo '{\"kind\":\"step\",\"loss\":1,\"images_per_second\":7}' >$out/metrics.jsonl; }");
  const std::string report = report_of("", "--device simt --only small,speed-tiny,shared-gpu");
  EXPECT_TRUE(has(report, "speed-tiny                1       0")) << report;
  EXPECT_TRUE(has(report, "7 images/s, bf16")) << report;
  const std::string launched = contents(folder_ / "launched");
  EXPECT_TRUE(has(launched, "--image-size 32 --batch 8 --precision bf16 --steps 2 --device simt"))
      << launched;
  EXPECT_TRUE(has(launched,
                  "-n 2 --oversubscribe vit_tiny --precision fp32 --optimizer sgd --lr 0.05 "
                  "--steps 2 --batch 32 --data synthetic --image-size 64 --device simt"));
  EXPECT_EQ(code_, 0);
}

TEST_F(GpuCheck, ComparesTheKernelsMadeForSm90WithTheOthers) {
  script("build/launcher", "exit 0");
  script("build/bench",
         "us=8 large=20 by=\n"
         "case $* in *hopper*) us=5 large=21 by=', \"kernels\": \"hopper\"' ;; esac\n"
         "row() { echo \"{\\\"operation\\\": \\\"$1\\\", \\\"shape\\\": \\\"M64$3\\\", "
         "\\\"per_step\\\": 12, \\\"us\\\": $2}\"; }\n"
         "while [ $# -gt 1 ]; do\n"
         "  [ $1 != --json ] || echo \"{\\\"operations\\\": [$(row LinearForward \"$us$by\"), "
         "$(row 'LinearForward +=' \"$large$by\" ' N8 K16'), $(row Dropout 3)]}\" >$2\n"
         "  shift\n"
         "done\n"
         "echo 'H100, 80 GiB, sm_90'");
  const std::string report =
      report_of("", "--only bench-bf16,bench-hopper-bf16,beside-hopper-bf16");
  EXPECT_EQ(code_, 0) << report;
  EXPECT_TRUE(has(report, "beside-hopper-bf16        1       0       0")) << report;
  EXPECT_TRUE(has(report, "\nhopper-bf16: 0.34 ms a step by auto, 0.31 by hopper\n")) << report;
  EXPECT_TRUE(has(report, "auto us hopper us  ratio\nLinearForward")) << report;
  EXPECT_TRUE(has(report, "    12       8.0       5.0   1.60\n")) << report;
  EXPECT_FALSE(has(report, "\nDropout")) << report;
  EXPECT_EQ(contents(folder_ / (report_ + "/hopper-except.txt")), "LinearForward N8 K16\n");
  // On another GPU, a line gives the reason for not running.
  script("build/launcher", "echo 'this GPU is an sm_80'\nexit 2");
  report_of("", "--only hopper");
  EXPECT_TRUE(has(said(), "not run: this GPU is an sm_80\n")) << said();
}

TEST_F(GpuCheck, GoesOnWhereTheLastCommandEnded) {
  script("build/launcher", "exit 0");
  script("build/tests", three_tests + their_summary + "end\nexit 9");
  // The first command has time for steps that usually take no longer than 19 s.
  const std::string first = report_of("", "--seconds 19");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(first, "small                     2       1 ")) << first;
  EXPECT_TRUE(has(first, "no time for: bench-bf16 ")) << first;
  EXPECT_TRUE(has(said(), "the same command continues with these\n")) << said();
  write_text(folder_ / (report_ + "/small.log"), "as it was\n");
  // The second doesn't repeat what has run, prints it again, and is still red.
  const std::string second = report_of("", "--seconds 19");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(said(), "small                     2       1 ")) << said();
  EXPECT_TRUE(has(second, "linear_forward_M17_bf16")) << second;
  EXPECT_EQ(contents(folder_ / (report_ + "/small.log")), "as it was\n");
  // Asked for by name, a step runs again; another build begins a new table.
  report_of("", "--only small");
  EXPECT_NE(contents(folder_ / (report_ + "/small.log")), "as it was\n");
  script("build/bench", "echo 'H100, 80 GiB, sm_90'\n# built again");
  const std::string other = report_of("", "--only resume");
  EXPECT_FALSE(has(other, "small ")) << other;
}

TEST_F(GpuCheck, TellsFirstWhetherTheKernelsMadeForSm90AreRight) {
  script("build/launcher",
         "echo \"${BAREVISION_DEPENDENT_LAUNCHES:-1} $*\" >>launched\n"
         "while [ $# -gt 1 ]; do [ $1 != --out ] || out=$2; shift; done\n"
         "[ -z \"$out\" ] || { mkdir -p $out/last && touch $out/last/weights.safetensors &&"
         " echo '{\"kind\":\"step\",\"step\":1,\"loss\":1}' >$out/metrics.jsonl; }");
  script("build/tests",
         "echo \"${BAREVISION_DEPENDENT_LAUNCHES:-1} $*\" >>tested\n"
         "echo '[  PASSED  ] 3 tests.'");
  const std::string report = report_of("", "--only hopper-i,hopper-o,hopper-sm,hopper-l,hopper-c");
  EXPECT_TRUE(has(report, "Hopper's kernels are right: ")) << report;
  EXPECT_EQ(contents(folder_ / "tested"),
            "1 --gtest_color=no --gtest_filter=HopperInstructions/cuda.*\n"
            "0 --gtest_color=no --gtest_filter=KernelTable/cuda_hopper.*\n"
            "1 --gtest_color=no --gtest_filter=KernelTable/cuda_hopper.*\n");
  // A kernel that never ends is a failure of its step alone.
  std::filesystem::remove(folder_ / "tested");
  script("build/timeout", "exec /usr/bin/timeout $1 $2 $(expr $3 / 60) \"$4\" \"$5\" \"$6\" $7");
  script("build/tests",
         "case $* in *Instructions*) exec sleep 30;; esac\necho '[  PASSED  ] 3 tests.'");
  const std::string stuck = report_of("", "--only hopper-instructions,hopper-small");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(stuck, "FAILED: still running after 60 s")) << stuck;
  EXPECT_TRUE(has(stuck, "hopper-small              3       0")) << stuck;
  EXPECT_TRUE(has(stuck, "Hopper's kernels are WRONG: hopper-instructions\n")) << stuck;
}

TEST_F(GpuCheck, EndsByItselfInTime) {
  const std::string report = report_of("", "--only small,training,bench --seconds 9");
  EXPECT_TRUE(has(report, "not finished: out of time")) << report;
  EXPECT_TRUE(has(report, "no time for: bench-")) << report;
  EXPECT_FALSE(has(report, "memcheck")) << report;
  EXPECT_EQ(code_, 0);
}

}  // namespace
}  // namespace bv::test
