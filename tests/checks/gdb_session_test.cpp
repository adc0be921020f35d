// The gdb session in simt/README.md shows lines of kernels, which must match the sources.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/files.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

const std::string session_of = "\n### A kernel of this project\n";

std::vector<std::string> lines_of(const std::string& file) {
  for (const char* room : {"kernels/layers/", "kernels/cuda/", "simt/device/"})
    if (const std::string path = room + file; std::filesystem::exists(path)) {
      std::istringstream text(contents(path));
      std::vector<std::string> lines = {""};  // counted from 1
      for (std::string line; std::getline(text, line);) lines.push_back(line);
      return lines;
    }
  return {};
}

class GdbSession : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("simt/README.md")) GTEST_SKIP() << "not started in the checkout";
    const std::string readme = contents("simt/README.md");
    const size_t begin = readme.find(session_of);
    ASSERT_NE(begin, readme.npos);
    session_ = readme.substr(begin, readme.find("\n## ", begin) - begin);
  }
  std::string session_;
};

// "204\t  const float mean = ...", as gdb prints the line where it has stopped.
TEST_F(GdbSession, ShowsLinesAsTheyAre) {
  const std::vector<std::string> kernel = lines_of("layernorm.cu");
  int found = 0;
  const std::regex shown("\n    (\\d+)\t([^\n]*)");
  for (std::sregex_iterator i(session_.begin(), session_.end(), shown), end; i != end; ++i, ++found)
    EXPECT_EQ(kernel.at(std::stoul((*i)[1])), (*i)[2]);
  EXPECT_GE(found, 1);
}

// Threads stop where they wait for others, or at the stand-in's breakpoint for gdb.
TEST_F(GdbSession, NamesPlacesWhereAThreadCanStop) {
  int found = 0;
  const std::regex place("([a-z]+\\.(?:cuh?|cpp)):(\\d+)");
  for (std::sregex_iterator i(session_.begin(), session_.end(), place), end; i != end;
       ++i, ++found) {
    const std::string line = lines_of((*i)[1]).at(std::stoul((*i)[2]));
    EXPECT_TRUE(has(line, "warp_sum<") || has(line, "__shfl") || has(line, "void simt_break("))
        << i->str() << ": " << line;
  }
  EXPECT_GE(found, 5);
}

}  // namespace
}  // namespace bv::test
