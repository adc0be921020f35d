// Which evaluation is the best one.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/run/evaluation.h"

namespace bv::test {
namespace {

TEST(Best, HigherTop1ThenLowerLossThenEarlier) {
  const auto better = [](double top1, double loss, const Checkpoint& best) {
    return is_better({.top1 = top1, .loss = loss}, best, BestBy::top1);
  };
  EXPECT_TRUE(better(0, 9, {}));  // the first
  const Checkpoint best{.best_top1 = .5, .best_loss = 1.};
  EXPECT_TRUE(better(.6, 2, best));
  EXPECT_FALSE(better(.4, .1, best));
  EXPECT_TRUE(better(.5, .9, best));
  EXPECT_FALSE(better(.5, 1, best));
  EXPECT_FALSE(better(.5, 1.1, best));
  EXPECT_FALSE(better(.5, NAN, best));
  const Checkpoint infinite{.best_top1 = .5, .best_loss = HUGE_VAL};
  EXPECT_TRUE(better(.5, 7, infinite));
  EXPECT_FALSE(better(.5, HUGE_VAL, infinite));
  const Checkpoint of_an_older_version{.best_top1 = .5};
  EXPECT_FALSE(better(.5, .1, of_an_older_version));
  EXPECT_TRUE(better(.51, 3, of_an_older_version));
}

TEST(Best, ByLoss) {
  const auto better = [](double loss, const Checkpoint& best) {
    return is_better({.top1 = 0, .loss = loss}, best, BestBy::loss);
  };
  EXPECT_TRUE(better(9, {}));
  EXPECT_FALSE(better(HUGE_VAL, {}));
  EXPECT_FALSE(better(NAN, {}));
  EXPECT_TRUE(better(.9, {.best_top1 = .5, .best_loss = 1.}));
  EXPECT_FALSE(better(1, {.best_top1 = .5, .best_loss = 1.}));
}

}  // namespace
}  // namespace bv::test
