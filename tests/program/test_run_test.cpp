// make test itself: its counting, and what it builds for a FILTER.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

class TestRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("tests/run")) GTEST_SKIP() << "not in the project's folder";
  }
  std::string output_of(const std::string& command) const {
    code_ = std::system((command + " >" + (folder_ / "output") + " 2>&1").c_str()) / 256;
    return contents(folder_ / "output");
  }

  TemporaryFolder folder_;
  mutable int code_ = 0;
};

TEST_F(TestRun, CountsWhatPassedBeforeACrash) {
  write_text(folder_ / "tests",
             "#!/bin/sh\n"
             "case $* in *KernelTable*) echo '[  PASSED  ] 0 tests.'; exit 0;; esac\n"
             "echo '[       OK ] A.One (1 ms)'\n"
             "echo '[  SKIPPED ] A.Two (0 ms)'\n"
             "echo '[       OK ] A.Three (1 ms)'\n"
             "echo '[  FAILED  ] A.Four (1 ms)'\n"
             "echo '[ RUN      ] A.Five'\n"
             "kill -SEGV $$\n");
  std::filesystem::permissions(folder_ / "tests", std::filesystem::perms::owner_all);
  const std::string output = output_of("tests/run " + folder_.path() + " A");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(output, "[ RUN      ] A.Five\n"));
  EXPECT_TRUE(has(output, "\n2 passed, 2 failed, 1 skipped\n"));
  EXPECT_TRUE(has(output, "  A.Four  make test FILTER=A.Four\n"));
  EXPECT_TRUE(has(output, "  A.Five  make test FILTER=A.Five\n"));
}

TEST_F(TestRun, AddsUpTheShardsOfAWholeRun) {
  write_text(folder_ / "tests",
             "#!/bin/sh\n"
             "case $* in *KernelTable*) echo '[  PASSED  ] 0 tests.'; exit 0;; esac\n"
             "echo \"[  PASSED  ] 1$GTEST_SHARD_INDEX tests.\"\n"
             "[ $GTEST_SHARD_INDEX = 0 ] && exit\n"
             "echo 'tests/a.cpp:1: Failure'\n"
             "echo '[  FAILED  ] 1 test, listed below:'\n"
             "exit 1\n");
  std::filesystem::permissions(folder_ / "tests", std::filesystem::perms::owner_all);
  const std::string output = output_of("BAREVISION_CHECKS=0 tests/run " + folder_.path());
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(output, "tests/a.cpp:1: Failure\n"));
  EXPECT_TRUE(has(output, "\ntests: 33 passed, 2 failed, 0 skipped"));
}

TEST_F(TestRun, PrintsAFailureWhileOthersRun) {
  write_text(
      folder_ / "tests",
      "#!/bin/sh\n"
      "case $* in *KernelTable*) echo '[  PASSED  ] 0 tests.'; exit 0;; esac\n"
      "echo '[ RUN      ] A.One'\n"
      "echo 'of A.One'\n"
      "echo '[       OK ] A.One (30 ms)'\n"
      "echo '[ RUN      ] A.Two'\n"
      "echo 'tests/a.cpp:1: Failure'\n"
      "echo '[  FAILED  ] A.Two, where GetParam() = 3 (20 ms)'\n"
      // The script continues once the output has the failure; else the test fails after 5 minutes.
      "for n in $(seq 3000); do grep -q a.cpp:1 " +
          (folder_ / "output") +
          " && seen=1 && break; sleep 0.1; done\n"
          "[ \"$seen\" ] && echo '[  PASSED  ] 1 test.'\n"
          "echo '[  FAILED  ] 1 test, listed below:'\n"
          "exit 1\n");
  std::filesystem::permissions(folder_ / "tests", std::filesystem::perms::owner_all);
  const std::string output = output_of("tests/run " + folder_.path() + " A");
  EXPECT_FALSE(has(output, "of A.One"));
  EXPECT_TRUE(has(output, "tests/a.cpp:1: Failure\n"));
  EXPECT_TRUE(has(output, "\n  A.Two  make test FILTER=A.Two\ntime by part: tests "));
  EXPECT_TRUE(has(output, "\n1 passed, 1 failed, 0 skipped\n"));
}

TEST_F(TestRun, CountsWhatRunsBesideTheTests) {
  // 0 tests with AVX-512 switched off: tests/run makes that second run only on CPUs with AVX-512.
  write_text(folder_ / "tests",
             "#!/bin/sh\n[ \"$BAREVISION_ISA\" ] && n=0 || n=1\necho \"[  PASSED  ] $n tests.\"\n");
  write_text(folder_ / "fuzz", "#!/bin/sh\necho 'it is well'\n");
  write_text(folder_ / "fuzz_pictures", "#!/bin/sh\necho 'it crashed'\nexit 1\n");
  for (const char* program : {"tests", "fuzz", "fuzz_pictures"})
    std::filesystem::permissions(folder_ / program, std::filesystem::perms::owner_all);
  const std::string run = " BAREVISION_CHECKS=0 tests/run " + folder_.path();
  const std::string output = output_of("BAREVISION_TEST_ALL=1" + run);
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(output, "\nfuzz: it is well (")) << output;
  EXPECT_TRUE(has(output, "\nit crashed\n"));
  EXPECT_TRUE(has(output, "\n  fuzz_pictures  make test FILTER=fuzz\n"));
  EXPECT_TRUE(has(output, "\n4 passed, 2 failed, 0 skipped\n"));  // with the check of no objects
  EXPECT_TRUE(std::regex_search(output, std::regex("time by part: .*tests .*fuzz_pictures ")));
  const std::string env = "env -u BAREVISION_TEST_ALL BAREVISION_TEST_TURN=";
  EXPECT_TRUE(has(output_of(env + "0" + run), "\n4 passed, 1 failed, 0 skipped\n"));
  EXPECT_TRUE(has(output_of(env + "1" + run), "\n3 passed, 1 failed, 0 skipped\n"));
}

TEST_F(TestRun, AWordWithoutTestsNamesTheNearestSuites) {
  write_text(
      folder_ / "tests",
      "#!/bin/sh\n"
      "case $* in *list_tests*) printf 'Launch.\\n  One\\nSchedule.\\n  Two\\nAbc.\\n';; esac\n"
      "echo '[  PASSED  ] 0 tests.'\n");
  std::filesystem::permissions(folder_ / "tests", std::filesystem::perms::owner_all);
  const std::string output = output_of("tests/run " + folder_.path() + " schedulr");
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(
      has(output, "no test has schedulr in its name; the nearest suites: Schedule, Launch\n"));
}

// Fuzzers with sanitizers, and examples, compile longer than what most filters need.
TEST_F(TestRun, BuildsForAFilterWhatItsTestsStart) {
  const std::string env = "env -u MAKEFLAGS -u MAKELEVEL -u BAREVISION_TEST_ALL ",
                    make = " make -n CUDA=0 BUILD=" + (folder_ / "none") + " test FILTER=";
  const std::string some = output_of(env + make + "LayerNorm"),
                    all = output_of(env + "BAREVISION_TEST_TURN=all" + make);
  for (const char* extra : {"/none/asan/", "/none/file_faults.so", "/none/try/"}) {
    EXPECT_TRUE(has(all, extra));
    EXPECT_FALSE(has(some, extra));
  }
  EXPECT_TRUE(has(some, "tests/run"));
  EXPECT_TRUE(std::regex_search(output_of(env + "-u BAREVISION_TEST_TURN" + make),
                                std::regex("BAREVISION_TEST_TURN=[0-3] .*tests/run")));
  // The programs of large tests are built in the turn of these tests.
  const std::vector<std::vector<std::string>> programs = {
      {"/fuzz"}, {"/counters_tests", "/counters_few"}, {"/racecheck_tests"}, {"/fuzz_pictures"}};
  for (size_t turn = 0; turn < programs.size(); ++turn) {
    const std::string output =
        output_of(env + "BAREVISION_TEST_TURN=" + std::to_string(turn) + make);
    for (size_t of = 0; of < programs.size(); ++of)
      for (const std::string& program : programs[of])
        EXPECT_EQ(has(output, "link      " + folder_.path() + "/none" + program + "\""), of == turn)
            << program << " in turn " << turn;
  }
}

}  // namespace
}  // namespace bv::test
