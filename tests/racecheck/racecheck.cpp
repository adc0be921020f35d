// make racecheck: the kernel table's tests on the stand-in, with every access of the kernels
// watched for races (simt/races). An argument is a word of the tests' names, which begin with the
// operation's.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "simt/device/control.h"
#include "simt/races/races.h"

namespace {

const std::string suite = "KernelTable/simt";

// "max_pool_forward_N1_H56" is of max_pool_forward.
std::string operation_of(const std::string& test) {
  std::string operation;
  for (const std::string& word : bv::split(test, '_')) {
    if (word.find_first_of("0123456789") != word.npos) break;
    operation += (operation.empty() ? "" : "_") + word;
  }
  return operation;
}

std::vector<std::string> tests() {
  std::vector<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s)
    if (const testing::TestSuite& one = *all.GetTestSuite(s); one.name() == suite)
      for (int t = 0; t < one.total_test_count(); ++t)
        names.emplace_back(one.GetTestInfo(t)->name());
  return names;
}

// A race fails the test in which it was found.
class Watch : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const size_t found = simt::Races::instance().found();
    if (found > found_) ADD_FAILURE() << found - found_ << " races in " << test.name();
    found_ = found;
  }
  size_t found_ = 0;
};

}  // namespace

int main(int count, char** words) {
  GTEST_FLAG_SET(brief, true);
  testing::InitGoogleTest(&count, words);
  const std::string word = count > 1 ? words[1] : "";
  std::set<std::string> operations, chosen;
  size_t cases = 0;
  for (const std::string& test : tests()) {
    operations.insert(operation_of(test));
    if (test.find(word) == test.npos) continue;
    chosen.insert(operation_of(test));
    ++cases;
  }
  const std::vector<std::string> known(operations.begin(), operations.end());
  if (!cases) {
    const std::string nearest = bv::nearest(word, known);
    std::fprintf(stderr, "racecheck: no operation is called %s; %s%s\n", word.c_str(),
                 nearest.empty() ? "there are " : "the nearest is ",
                 nearest.empty() ? bv::join(known, ", ").c_str() : nearest.c_str());
    return 2;
  }
  if (!word.empty())
    std::printf("racecheck: %s\n",
                bv::join(std::vector<std::string>(chosen.begin(), chosen.end()), ", ").c_str());
  GTEST_FLAG_SET(filter, suite + ".*" + word + "*");
  testing::UnitTest::GetInstance()->listeners().Append(new Watch);
  const int code = RUN_ALL_TESTS();
  const simt::Races& races = simt::Races::instance();
  std::printf("racecheck: %zu kernels in %zu launches of %zu cases: %s\n",
              simt::kernels_run().size(), races.watched(), cases,
              races.found() ? races.last_words().c_str() : "no race");
  return code;
}
