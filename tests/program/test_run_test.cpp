// make test itself: its counting, and what it builds for a FILTER.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"
#include "tests/turn.h"

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
  struct LargeTest {
    int turn;
    std::string name;
  };
  static std::vector<LargeTest> large_tests() {
    std::vector<LargeTest> all;
    std::ifstream file("tests/large_tests");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with('#')) continue;
      EXPECT_TRUE(std::regex_match(line, std::regex("[0-3] [^ *]+"))) << line;
      all.push_back({line[0] - '0', line.substr(2)});
    }
    return all;
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

TEST_F(TestRun, LargeTestsTakeTurns) {
  write_text(folder_ / "tests",
             "#!/bin/sh\n"
             "echo turn ${BAREVISION_TEST_TURN-none}\n"
             "echo \"$*\"\n"
             "exit 1\n");
  std::filesystem::permissions(folder_ / "tests", std::filesystem::perms::owner_all);
  const std::string run = " BAREVISION_CHECKS=0 tests/run " + folder_.path(),
                    env = "env -u BAREVISION_TEST_ALL ";
  EXPECT_TRUE(has(output_of(env + "BAREVISION_TEST_TURN=2" + run), "turn 2\n"));
  EXPECT_TRUE(has(output_of("BAREVISION_TEST_TURN=2 BAREVISION_TEST_ALL=1" + run), "turn none\n"));
  EXPECT_TRUE(has(output_of("BAREVISION_TEST_TURN=2" + run + " A"), "turn none\n"));
  EXPECT_TRUE(has(output_of(env + "-u BAREVISION_TEST_TURN" + run), "turn none\n"));

  // A whole run leaves out the tests in the list that have another turn.
  const std::vector<LargeTest> large = large_tests();
  ASSERT_FALSE(large.empty());
  const LargeTest& first = large.front();
  const std::string own = std::to_string(first.turn), other = first.turn == 3 ? "0" : "3";
  EXPECT_FALSE(has(output_of(env + "BAREVISION_TEST_TURN=" + own + run), first.name));
  EXPECT_TRUE(has(output_of(env + "BAREVISION_TEST_TURN=" + other + run), first.name + ":"));
  EXPECT_FALSE(has(output_of(env + "BAREVISION_TEST_TURN=all" + run), first.name));
  EXPECT_FALSE(has(output_of("BAREVISION_TEST_ALL=1" + run), first.name));
  EXPECT_TRUE(has(output_of(env + "BAREVISION_TEST_TURN=4" + run), "is 0 to 3, or all\n"));
  EXPECT_EQ(code_, 2);

  // Each of many names has its turn once.
  std::vector<int> turns(4);
  const char* const of_this_run = std::getenv("BAREVISION_TEST_TURN");
  const std::string before = of_this_run ? of_this_run : "";
  for (int turn = 0; turn < 4; ++turn) {
    setenv("BAREVISION_TEST_TURN", std::to_string(turn).c_str(), 1);
    for (int i = 0; i < 1000; ++i) turns[size_t(turn)] += is_its_turn("row" + std::to_string(i));
  }
  unsetenv("BAREVISION_TEST_TURN");
  EXPECT_TRUE(is_its_turn("row"));
  if (of_this_run) setenv("BAREVISION_TEST_TURN", before.c_str(), 1);
  EXPECT_EQ(turns[0] + turns[1] + turns[2] + turns[3], 1000);
  for (const int count : turns) EXPECT_NEAR(count, 250, 50);
}

#if defined(BAREVISION_SIMT) && BAREVISION_RECORDS && BAREVISION_TENSORBOARD
TEST_F(TestRun, LargeTestsAreThere) {
  std::map<std::string, int> turns;
  for (const auto& [turn, name] : large_tests())
    EXPECT_TRUE(turns.emplace(name, turn).second) << name << " has two turns";
  const auto& program = *testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); ++i) {
    const auto& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.name() + std::string(".") + suite.GetTestInfo(j)->name();
      const auto turn = turns.find(name);
      // Tests that start build/counters_few or learn/ programs must have the turn that builds them.
      const int needed = name.starts_with("View.")                                    ? 1
                         : name.starts_with("Learn") || name.starts_with("All/Learn") ? 2
                                                                                      : -1;
      if (needed >= 0) {
        EXPECT_TRUE(turn != turns.end() && turn->second == needed) << name;
      }
      if (turn != turns.end()) turns.erase(turn);
    }
  }
  for (const auto& [name, turn] : turns) ADD_FAILURE() << "there is no test " << name;
}
#endif

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
