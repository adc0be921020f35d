// learn/: every rung gives right results and notices a wrong one; learn/ladder prints its table and
// refuses rungs that are wrong or improve nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

bool is_rung(const std::string& file) {  // v1.cu, v1.cpp
  return file.size() > 4 && file[0] == 'v' && std::isdigit(file[1]) &&
         (file.ends_with(".cu") || file.ends_with(".cpp"));
}

// "layernorm/v1" ...: empty outside of the checkout.
std::vector<std::string> rungs() {
  std::vector<std::string> all;
  if (!std::filesystem::exists("learn")) return all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("learn"))
    if (const auto path = entry.path(); is_rung(path.filename()))
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
// All rungs check their results by learn.h, so make test spoils one rung of each topic, make
// test-all every rung.
class LearnSpoilt : public Learn {};
TEST_P(LearnSpoilt, NoticesAWrongNumber) {
  const Ended end = shell("LEARN_SPOIL=1 " + program_);
  EXPECT_EQ(end.code, 1) << end.output;
  EXPECT_TRUE(has(end.output, ": 1 of "));
  EXPECT_TRUE(has(end.output, " wrong; the first is element 0: ")) << end.output;
  EXPECT_FALSE(has(end.output, "needs ")) << end.output;
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
  static std::string line_of(const std::string& rung, const std::string& earns) {
    return "layernorm " + rung +
           ": an idea: 0 of 9 wrong, error 0.0e+00 <= 1.0e-05; needs 3200 bytes, 0 of weights, 9 "
           "flops, times 1000; earns " +
           earns;
  }
  void write_program(const std::string& rung, const std::string& text) {
    const std::string program = folder_ / ("learn/layernorm/" + rung);
    write_text(program, "#!/bin/sh\n" + text);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  void write_without_kernel(const std::string& rung, const std::string& earns, int steps,
                            int messages) {
    write_program(rung, "echo '" + line_of(rung, earns) + "; steps " + std::to_string(steps) +
                            ", messages " + std::to_string(messages) + "; measured as -'\n");
  }
  void write(const std::string& rung, const std::string& earns, int sectors, int code) {
    std::string counts = R"({"kernel": "k", "launches": 1, "requests": 50, "sectors": )" +
                         std::to_string(sectors) + R"(, "moved": 3200, "shared": 0, "turns": 0, )" +
                         R"("ldmatrix": 0, "ldmatrix_conflicts": 0, "conflicts": 0, "mma": 0, )" +
                         R"("barriers": 7, "shuffles": 0})";
    write_program(rung, "echo '" + line_of(rung, earns) + "; measured as -'\necho '" + counts +
                            "' >\"$LEARN_COUNTS\"\nexit " + std::to_string(code) + "\n");
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
  EXPECT_TRUE(
      has(end.output, "learn: layernorm v2 doesn't lower its count: barriers 7 before, 7 now\n"));
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
  EXPECT_TRUE(has(end.output, "\nmake try FILE=learn/layernorm/v2.cu checks each access of it: "));
}
// Such a rung uses processes or host threads; the table has only the counts that the rung prints.
TEST_F(LearnLadder, ARungWithoutAKernelHasItsOwnCounts) {
  write_without_kernel("v1", "-", 700, 100);
  write_without_kernel("v2", "steps", 70, 200);
  write_without_kernel("v3", "messages", 7, 150);
  write_without_kernel("v4", "messages", 7, 100);
  const Ended end = ladder();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_TRUE(has(end.output, "steps 700, messages 100\n"));
  EXPECT_TRUE(has(end.output, "steps 70, messages 200  steps 700 -> 70\n"));
  write_without_kernel("v4", "steps", 7, 100);
  EXPECT_TRUE(
      has(ladder().output, "layernorm v4 doesn't lower its count: steps 7 before, 7 now\n"));
}
TEST(LearnTable, RefusesAnUnknownTopic) {
  if (!std::filesystem::exists("learn/ladder")) GTEST_SKIP() << "not started in the checkout";
  const Ended end = shell("learn/ladder build poetry");
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.output,
            "learn: TOPIC=poetry: there are adamw, allreduce, attention, conv, layernorm, matmul, "
            "softmax_loss\n");
}

}  // namespace
}  // namespace bv::test
