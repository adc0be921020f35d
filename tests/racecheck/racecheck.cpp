// make racecheck runs the kernel table's tests on the stand-in and watches every access of the
// kernels for races (simt/races). Arguments are parts of test names, which begin with the
// operation's name: a test runs if its name contains one of them.
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

// The operation that a test is for: max_pool_forward for "max_pool_forward_N1_H56".
std::string operation_of(const std::string& test) {
  std::string operation;
  for (const std::string& word : bv::split(test, '_')) {
    if (word.find_first_of("0123456789") != word.npos) break;
    operation += (operation.empty() ? "" : "_") + word;
  }
  return operation;
}

// "max", "max_pool" and "max_pool_forward": suggestions for a misspelt word.
std::vector<std::string> beginnings(const std::set<std::string>& operations) {
  std::set<std::string> all;
  for (const std::string& name : operations)
    for (size_t end = 0; end != name.npos;) {
      end = name.find('_', end + 1);
      all.insert(name.substr(0, end));
    }
  return {all.begin(), all.end()};
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
  std::set<std::string> operations, chosen, cases;
  const std::vector<std::string> all = tests();
  for (const std::string& test : all) operations.insert(operation_of(test));
  const std::vector<std::string> asked =
      count > 1 ? std::vector<std::string>(words + 1, words + count) : std::vector<std::string>{""};
  std::string filter;
  for (const std::string& word : asked) {
    filter += (filter.empty() ? "" : ":") + suite + ".*" + word + "*";
    bool fits = false;
    for (const std::string& test : all)
      if (test.find(word) != test.npos)
        fits = true, chosen.insert(operation_of(test)), cases.insert(test);
    if (fits) continue;
    const std::vector<std::string> known(operations.begin(), operations.end());
    const std::string nearest = bv::nearest(word, beginnings(operations));
    std::fprintf(stderr, "racecheck: no test's name has %s; %s%s\n", word.c_str(),
                 nearest.empty() ? "there are " : "the nearest is ",
                 nearest.empty() ? bv::join(known, ", ").c_str() : nearest.c_str());
    return 2;
  }
  if (count > 1)
    std::printf("racecheck: %s\n",
                bv::join(std::vector<std::string>(chosen.begin(), chosen.end()), ", ").c_str());
  GTEST_FLAG_SET(filter, filter);
  testing::UnitTest::GetInstance()->listeners().Append(new Watch);
  const int code = RUN_ALL_TESTS();
  const simt::Races& races = simt::Races::instance();
  std::printf("racecheck: %zu kernels in %zu launches of %zu cases: %s\n",
              simt::kernels_run().size(), races.watched(), cases.size(),
              races.found() ? races.last_words().c_str() : "no race");
  return code;
}
