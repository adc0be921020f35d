// Which overload of CUDA's functions a call takes on the stand-in, for each pair of types: as
// tests/simt/try/overloads.txt says, and as CUDA's own headers do where they are installed.
#include "tests/simt/try/overloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "simt/try.h"
#include "tests/files.h"
#include "tests/messages.h"
#include "tests/simt/simt_programs.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

using namespace overloads;  // for OVERLOADS
using overloads::Table;

std::vector<Table> tables() {
  std::vector<Table> all;
#define ADD(...) all.push_back(__VA_ARGS__);
  OVERLOADS(ADD)
#undef ADD
  return all;
}

// The names of functions whose tables are equal, and below them the table.
std::string text_of(const std::vector<Table>& all) {
  std::vector<std::pair<std::string, std::string>> groups;  // a table, and its names
  const std::string letters = overloads::letters;
  for (const Table& t : all) {
    std::string rows;
    for (size_t i = 0; t.types[i]; ++i) {
      if (i % letters.size() == 0)
        rows += std::string("\n  ") + (t.has_rows ? letters[i / letters.size()] : ' ') + " ";
      rows += t.types[i];
    }
    const auto is_same = [&](const auto& group) { return group.first == rows; };
    const auto group = std::ranges::find_if(groups, is_same);
    if (group == groups.end())
      groups.emplace_back(rows, t.name);
    else
      group->second += std::string("\n") + t.name;
  }
  std::string text;
  for (const auto& [rows, names] : groups)
    text += (text.empty() ? "" : "\n") + names + "\n    " + letters + rows + "\n";
  return text;
}

// Halves, the atomics of floats and sincos are part of the stand-in only as far as the kernels need
// them: what it lacks is refused.
bool may_be_refused(const Table& t, size_t i) {
  const std::string letters = overloads::letters, name = t.name;
  const auto is = [&](const char* types, size_t type) {
    return std::string(types).find(letters[type]) != std::string::npos;
  };
  const size_t row = i / letters.size(), column = i % letters.size();
  const bool is_in_part = name.find("half") != name.npos || name.find("bfloat") != name.npos ||
                          name == "__hadd" || name == "__hmul" || name.starts_with("sincos");
  return is("HB", column) || (t.has_rows && is("HB", row)) || is_in_part ||
         (name.starts_with("atomic") && is("fd", row));
}
// The table that nvcc must have, as a string literal; a star stands for a type that may differ.
std::string expected(const Table& t) {
  std::string types = t.types;
  for (size_t i = 0; i < types.size(); ++i)
    if (types[i] == '.' && may_be_refused(t, i)) types[i] = '*';
  return "\"" + types + "\",\n";
}

TEST(SimtOverloads, AreThoseOfTheTable) {
  const std::string file = "tests/simt/try/overloads.txt";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "not in the project's folder";
  const std::string text = text_of(tables());
  if (getenv("UPDATE")) write_text(file, text);
  EXPECT_EQ(text, contents(file)) << "UPDATE=1 writes it";
}

TEST(SimtOverloads, MixedTypesHaveTheirCommonValue) {
  const double third = 1. / 3, nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(min((1 << 24) + 1, 1u << 30), 16777217u);
  EXPECT_EQ(min(-1, 2u), 2u);
  EXPECT_EQ(max(-1l, 3ul), ~0ul);
  EXPECT_EQ(max(-1ll, 3ull), ~0ull);
  EXPECT_EQ(max(.25f, third), third);
  EXPECT_EQ(min(third, .25f), .25);
  EXPECT_EQ(min(nan, third), third);
  EXPECT_EQ(max(third, nan), third);
  EXPECT_EQ(min(char{-3}, short{2}), -3);
  EXPECT_EQ(exp10(-.5f), exp10f(-.5f));
}

// nvcc compiles the tables for a GPU, and the values for the host.
const std::string nvcc_types = R"(#include "tests/simt/try/overloads.h"
constexpr bool fits(const overloads::Table& t, const char* expected) {
  for (int i = 0; expected[i]; ++i)
    if (expected[i] != '*' && expected[i] != t.types[i]) return false;
  return true;
}
constexpr const char* expected[] = {
#include "expected.inc"
};
constexpr int first = __COUNTER__ + 1;
#define CHECK(...) static_assert(fits(__VA_ARGS__, expected[__COUNTER__ - first]), #__VA_ARGS__);
using namespace overloads;
__device__ void check() { OVERLOADS(CHECK) }
)";
const std::string nvcc_values = R"(#include "tests/simt/try/overloads.h"
int main() { std::fputs(overloads::values().c_str(), stdout); }
)";

TEST(SimtOverloads, AreThoseOfCudasHeaders) {
  if (!std::filesystem::exists("Makefile")) GTEST_SKIP() << "not in the project's folder";
  std::string nvcc = shell("command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null").output;
  if (nvcc.empty()) GTEST_SKIP() << "CUDA is not installed: there is no nvcc";
  nvcc.back() = ' ';
  nvcc += "-std=c++20 -arch=sm_80 -w -I. ";
  const TemporaryFolder scratch;
  std::string types;
  for (const Table& t : tables()) types += expected(t);
  write_text(scratch / "expected.inc", types);
  write_text(scratch / "types.cu", nvcc_types);
  write_text(scratch / "values.cu", nvcc_values);
  const Ended checked =
      shell(nvcc + "--expt-relaxed-constexpr -ptx -o /dev/null " + (scratch / "types.cu"));
  EXPECT_EQ(checked.code, 0) << checked.output;
  const std::string program = scratch / "values";
  const Ended values = shell(nvcc + "-o " + program + " " + program + ".cu && " + program);
  EXPECT_EQ(values.output, overloads::values());
}

}  // namespace
}  // namespace bv::test
