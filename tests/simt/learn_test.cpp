// learn/: every rung is right and notices one wrong number; the table, and what it refuses.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/comm/processes.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

struct Ended {
  int code;
  std::string output;  // and errors
};
Ended shell(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (!pipe) throw std::runtime_error("popen");
  Ended end{0, ""};
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) end.output.append(part, n);
  const int status = pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

// "layernorm/v1" ...: empty outside of the checkout.
std::vector<std::string> rungs() {
  std::vector<std::string> all;
  if (!std::filesystem::exists("learn")) return all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("learn"))
    if (const auto path = entry.path(); path.stem().string()[0] == 'v' && path.has_extension())
      all.push_back(path.parent_path().filename() / path.stem());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> rungs_to_spoil() {
  std::vector<std::string> all = rungs();
  if (!std::getenv("BAREVISION_TEST_ALL"))
    std::erase_if(all, [](const std::string& rung) { return !rung.ends_with("/v1"); });
  return all;
}
std::string name_of(const testing::TestParamInfo<std::string>& rung) {
  std::string name = rung.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

class Learn : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    program_ = std::filesystem::path(own_path()).parent_path() / "learn" / GetParam();
    if (!std::filesystem::exists(program_)) GTEST_SKIP() << "not built: make test builds it";
  }
  std::string program_;
};
TEST_P(Learn, IsRight) {
  const Ended end = shell(program_);
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_TRUE(has(end.output, ": 0 of "));
  EXPECT_EQ(std::count(end.output.begin(), end.output.end(), '\n'), 1) << end.output;
}
// They all compare by learn.h: one of each topic in make test, every rung in make test-all.
class LearnSpoilt : public Learn {};
TEST_P(LearnSpoilt, NoticesAWrongNumber) {
  const Ended end = shell("LEARN_SPOIL=1 " + program_);
  EXPECT_EQ(end.code, 1) << end.output;
  EXPECT_TRUE(has(end.output, ": 1 of "));
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Learn);
INSTANTIATE_TEST_SUITE_P(All, Learn, testing::ValuesIn(rungs()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LearnSpoilt);
INSTANTIATE_TEST_SUITE_P(All, LearnSpoilt, testing::ValuesIn(rungs_to_spoil()), name_of);

// A build folder whose rungs are scripts.
class LearnLadder : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("learn/ladder")) GTEST_SKIP() << "not started in the checkout";
    for (const char* rung : {"v1", "v2", "v3", "v4"}) write(rung, "-", 100, 0);
  }
  void write(const std::string& rung, const std::string& earns, int sectors, int code) {
    const std::string program = folder_ / ("learn/layernorm/" + rung);
    std::string line =
        "layernorm " + rung +
        ": an idea: 0 of 9 wrong, error 0.0e+00 <= 1.0e-05; needs 3200 bytes, 0 of weights, 9 "
        "flops, times 1000; earns " +
        earns + "; measured as -";
    std::string counts = R"({"kernel": "k", "launches": 1, "requests": 50, "sectors": )" +
                         std::to_string(sectors) + R"(, "moved": 3200, "shared": 0, "turns": 0, )" +
                         R"("ldmatrix": 0, "ldmatrix_conflicts": 0, "conflicts": 0, "mma": 0, )" +
                         R"("barriers": 7, "shuffles": 0})";
    write_text(program, "#!/bin/sh\necho '" + line + "'\necho '" + counts +
                            "' >\"$LEARN_COUNTS\"\nexit " + std::to_string(code) + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  Ended ladder() { return shell("learn/ladder " + folder_ / "" + " layernorm"); }
  TemporaryFolder folder_;
};
TEST_F(LearnLadder, HasALineARung) {
  for (const auto& [rung, sectors] : {std::pair{"v2", 90}, {"v3", 80}, {"v4", 70}})
    write(rung, "sectors", sectors, 0);
  const Ended end = ladder();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_TRUE(has(end.output, "sectors 100 -> 90\n"));
  EXPECT_TRUE(has(end.output, "sectors 80 -> 70\n"));
  // 3.2 MB at 0.75 of 3.35 TB/s * 0.9, and a launch: 1.4 + 1.5 us.
  EXPECT_TRUE(has(end.output, " 2.9 memory "));
}
TEST_F(LearnLadder, RefusesARungThatEarnsNothing) {
  write("v2", "barriers", 90, 0);
  const Ended end = ladder();
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.output, "learn: layernorm v2 earns nothing: barriers 7 before, 7 now\n"));
}
TEST_F(LearnLadder, RefusesAMeasureThatIsNotCounted) {
  write("v2", "beauty", 90, 0);
  const Ended end = ladder();
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.output, "layernorm v2: earns beauty, which is no count of it"));
}
TEST_F(LearnLadder, NamesARungThatIsWrong) {
  write("v2", "sectors", 90, 1);
  const Ended end = ladder();
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.output, "learn: layernorm v2: an idea: "));
}
TEST(LearnTable, RefusesAnUnknownTopic) {
  if (!std::filesystem::exists("learn/ladder")) GTEST_SKIP() << "not started in the checkout";
  const Ended end = shell("learn/ladder build poetry");
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.output, "learn: poetry: no such topic\n"));
}

}  // namespace
}  // namespace bv::test
