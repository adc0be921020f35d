// learn/exercises: each unsolved exercise fails with its message, and its solution passes; the
// output that learn/README.md quotes is what they print.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"

namespace bv::test {
namespace {

const std::string folder = "learn/exercises/";

struct Exercise {
  std::string name;
  std::vector<std::string> says;  // while the gap is open
};
void PrintTo(const Exercise& e, std::ostream* out) { *out << e.name; }

const Exercise exercises[] = {
    {"01_first_kernel",
     {"y[1] should be 3, is nan: no thread", "512 threads wrote 1 of 512 numbers"}},
    {"02_bounds", {"y[896] should be", "7 blocks of 128 threads are 896 threads, for 1000"}},
    {"03_coalescing",
     {"a request touches 32 sectors", "expected 4", "lane 1 x[32], 128 bytes away"}},
    {"04_reduction", {"sums[0] should be 20100, is 1: partial[0] still holds"}},
    {"05_race",
     {"simt: count_digits: a race for bins[", "all 10 counts are right\nsimt: 1 race\n"}},
    {"06_bank_conflicts",
     {"turns to write a row: 1, to read a column: 32", "row 0 on: 0, 0, 0, 0, ...\n"}},
    {"07_warp_sum",
     {"lane 0 should hold the row's sum, 18336, but holds 480:\nthat is the sum of"}},
    {"08_layernorm", {"out[0] should be -0.9023, is nan", "fp32 steps by 0.25 at 4000000\n"}},
    {"09_layernorm_gradient",
     {"dinp[0] is 0.47804, but the loss changes by 0.56793 per unit", "sum to -2.892, not to 0"}},
    {"10_online_softmax",
     {"row 1, whose numbers rise: should be 49.4587, is 52.9120\nrow 0 falls"}},
    {"11_mma_fragments", {"lane 1 holds  d[0][2]  d[0][3]  d[8][2]  d[8][3]; your code puts them"}},
    {"12_loss_scale", {"step 1 should have scale 131072, has 262144: the gradient overflowed"}},
};

const std::string make_learn =
    "env -u MAKEFLAGS -u MAKELEVEL make -s learn BUILD=" + build_folder();
std::string source_of(const std::string& name) { return folder + name + ".cu"; }
std::string run_exercise(const std::string& built, const std::string& name) {
  return "learn/exercise " + build_folder() + "/learn/" + built + "/" + name + " " +
         source_of(name);
}
bool is_missing(const std::string& name) {
  return !std::filesystem::exists(folder) ||
         !std::filesystem::exists(build_folder() + "/learn/solved/" + name);
}
// Whether somebody has filled the gap, which is no failure.
bool is_changed(const std::string& name) {
  return shell("git diff --quiet HEAD -- " + source_of(name)).code == 1;
}

class LearnExercises : public testing::TestWithParam<Exercise> {};
TEST_P(LearnExercises, TheGapIsExplained) {
  const auto& [name, says] = GetParam();
  if (is_missing(name)) GTEST_SKIP() << "not built: make test builds them";
  if (is_changed(name)) GTEST_SKIP() << source_of(name) << " has changed";
  const Ended end = shell(run_exercise("exercises", name));
  EXPECT_EQ(end.code, 1) << end.output;
  for (const std::string& words : says) EXPECT_TRUE(has(end.output, words));
  EXPECT_TRUE(has(end.output, ": not solved yet; " + source_of(name) + ":"));
  EXPECT_TRUE(end.output.ends_with(" is yours; HINT=1 prints a hint\n")) << end.output;
}
// A hint gives the solution away, so neither the exercise's text nor its first failure contains it.
TEST_P(LearnExercises, TheHintWaitsToBeAsked) {
  const std::string& name = GetParam().name;
  if (is_missing(name)) GTEST_SKIP() << "not built: make test builds them";
  const std::string hint = contents(folder + "hints/" + name + ".txt");
  EXPECT_TRUE(hint.starts_with("hint: ")) << hint;
  EXPECT_EQ(shell(make_learn + " HINT=1 EXERCISE=" + std::to_string(std::stoi(name))).output, hint);
  EXPECT_EQ(contents(source_of(name)).find("int: "), std::string::npos);
}
TEST_P(LearnExercises, TheSolutionPasses) {
  const std::string& name = GetParam().name;
  if (is_missing(name)) GTEST_SKIP() << "not built: make test builds them";
  const Ended end = shell(run_exercise("solved", name));
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_TRUE(end.output.ends_with(": solved\n")) << end.output;
  EXPECT_EQ(end.output.find("simt: "), std::string::npos) << end.output;
}
INSTANTIATE_TEST_SUITE_P(All, LearnExercises, testing::ValuesIn(exercises),
                         [](const auto& exercise) { return "E" + exercise.param.name; });

TEST(LearnExercise, AllAreTested) {
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "not in the project's folder";
  for (const std::string& file : names_in(folder)) {
    const auto is_of = [&](const Exercise& e) { return e.name + ".cu" == file; };
    const bool is_exercise = file.ends_with(".cu");
    EXPECT_TRUE(!is_exercise || std::any_of(std::begin(exercises), std::end(exercises), is_of))
        << file;
  }
}
TEST(LearnExercise, ThatIsNotThere) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  for (const std::string number : {"13", "first"}) {
    const Ended end = shell(make_learn + " EXERCISE=" + number);
    EXPECT_EQ(end.code, 2);
    EXPECT_TRUE(has(end.output, "learn: EXERCISE=" + number + ": there are 01 first kernel, 02 "));
    EXPECT_TRUE(has(end.output, ", 12 loss scale\n"));
  }
}

struct Quote {
  std::string command;
  std::vector<std::string> lines;
};
// "    $ make ..." and the indented lines below it.
std::vector<Quote> quotes(const std::string& page) {
  std::vector<Quote> all;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("    $ ");
    if (begins) all.push_back({line.substr(6), {}});
    inside = begins || (inside && line.starts_with("    "));
    if (inside && !begins) all.back().lines.push_back(line.substr(4));
  }
  return all;
}
// The program that make runs for "make learn EXERCISE=3"; empty for any other command.
std::string program_of(const std::string& command) {
  const std::string words = "make learn EXERCISE=";
  if (!command.starts_with(words)) return "";
  for (const auto& [name, says] : exercises)
    if (std::stoi(name) == std::stoi(command.substr(words.size())))
      return run_exercise("exercises", name);
  return "learn: no exercise";
}

// Compares line by line; a quoted line that ends with "..." is cut short.
TEST(LearnReadme, QuotesWhatExercisesPrint) {
  if (is_missing("01_first_kernel")) GTEST_SKIP() << "not built: make test builds them";
  int compared = 0;
  for (const auto& [command, lines] : quotes(contents("learn/README.md"))) {
    const std::string program = program_of(command);
    if (lines.empty() || program.empty()) continue;
    const std::string output = "\n" + shell(program).output;
    size_t from = 0;
    for (std::string line : lines) {
      const bool is_cut = line.ends_with("...");
      if (is_cut) line.resize(line.size() - 3);
      from = output.find("\n" + line + (is_cut ? "" : "\n"), from);
      ASSERT_NE(from, output.npos) << command << " doesn't print (here): " << line << output;
      ++from;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

// Stop 6 of the page names a line number.
TEST(LearnReadme, NamesTheLineOfTheConflict) {
  if (!std::filesystem::exists("learn/README.md")) GTEST_SKIP() << "not in the project's folder";
  EXPECT_TRUE(has(contents("learn/README.md"), "Rung 4's conflicts are in line 26: click it"));
  std::istringstream lines(contents("learn/matmul/v4.cu"));
  std::string line;
  for (int i = 0; i < 26; ++i) std::getline(lines, line);
  EXPECT_TRUE(has(line, "a_own[i] = a_tile[y + i][k], b_own[i] = b_tile[k][x + i];"));
}

}  // namespace
}  // namespace bv::test
