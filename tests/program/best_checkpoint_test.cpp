// best/ of a run with so few validation images that many epochs have the same top-1.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "engine/files/checkpoint.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

class ProgramBest : public ShallowProgramTest {
 protected:
  // The step of the best epoch in metrics.jsonl; `ties`: how many have its top-1.
  int64_t best_step(const std::string& run, int& ties) const {
    const auto all = [&](const char* member) { return metric(in(run), "epoch", member); };
    const auto top1 = all("val_top1"), loss = all("val_loss"), step = all("step");
    std::tuple<double, double, int64_t> best(-1, 0, 0);  // top-1, -loss, -step
    for (size_t i = 0; i < step.size(); ++i)
      best = std::max(best, {std::stod(top1[i]), -std::stod(loss[i]), -std::stoll(step[i])});
    ties = static_cast<int>(std::ranges::count_if(
        top1, [&](const std::string& value) { return std::stod(value) == std::get<0>(best); }));
    return -std::get<2>(best);
  }
};

TEST_F(ProgramBest, OfEqualTop1HasTheLowestLoss) {
  // Dark and light images, which every epoch tells apart, with ever lower losses.
  for (int i = 0; i < 20; ++i)
    write_text(in("photos/class" + std::to_string(i % 2) + "/" + std::to_string(i) + ".ppm"),
               "P6 32 32 255 " + std::string(3 * 32 * 32, static_cast<char>(i % 2 * 100 + i)));
  const std::string words =
      on_vit + "--data photos --val-fraction 0.2 --batch 16 --epochs 8 --lr 1e-4 ";
  go(words + "--out run");
  int ties = 0;
  const int64_t step = best_step("run", ties);
  EXPECT_GT(ties, 1);
  EXPECT_EQ(load_checkpoint(in("run")).best_step, step);
  EXPECT_EQ(load_checkpoint(in("run")).step, 8);
  go(words + "--steps 3 --out resumed");
  go("--resume resumed --epochs 8");
  EXPECT_EQ(load_checkpoint(in("resumed")).best_step, step);
}

}  // namespace
}  // namespace bv::test
