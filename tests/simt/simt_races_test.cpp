// Races in make try. The first line of each program in tests/simt/races specifies its output:
//   // race: VARIABLE: write and read: what is missing between them
// for the accesses in the lines marked (1) and (2), or "// silent".
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"

namespace bv::test {
namespace {

const std::string folder = "tests/simt/races/";

std::vector<std::string> programs() {
  std::vector<std::string> names;
  if (std::filesystem::exists(folder))
    for (const std::string& name : names_in(folder))
      names.push_back(name.substr(0, name.find('.')));
  return names;
}

// The number of the line with this mark.
size_t line_of(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  if (at == text.npos) throw std::runtime_error("no line is marked " + mark);
  return size_t(std::count(text.begin(), text.begin() + ptrdiff_t(at), '\n')) + 1;
}

class SimtRaces : public testing::TestWithParam<std::string> {};
TEST_P(SimtRaces, AreNamed) {
  const std::string file = folder + GetParam() + ".cu",
                    program = build_folder() + "/try/races/" + GetParam();
  if (!std::filesystem::exists("tests/simt/races/")) GTEST_SKIP() << "not in the project's folder";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "not built: make test builds them";
  const std::string text = contents(file), first = text.substr(0, text.find('\n'));
  const Ended end = shell(program);
  if (first == "// silent") {
    EXPECT_EQ(end.code, 0);
    EXPECT_EQ(end.output, "");
    return;
  }
  std::smatch words;
  ASSERT_TRUE(std::regex_match(first, words,
                               std::regex("// race: ([a-z]+): ([a-z.]+) and ([a-z.]+): (.+)")));
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.output, ": a race for " + words[1].str() + "["));
  EXPECT_TRUE(has(end.output, "]: " + words[4].str() + "\n"));
  for (const auto& [touch, mark] : {std::pair(words[2], "(1)"), std::pair(words[3], "(2)")})
    EXPECT_TRUE(has(end.output, "  " + touch.str() + " at " + file + ":" +
                                    std::to_string(line_of(text, mark)) + " by thread ("));
}
INSTANTIATE_TEST_SUITE_P(All, SimtRaces, testing::ValuesIn(programs()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace bv::test
