// Lines on schedules that aren't what the user may expect.
#include "engine/training/schedule.h"

#include <gtest/gtest.h>

namespace bv::test {
namespace {

using Lines = std::vector<std::string>;

Options cosine(double epochs, double warmup_epochs) {
  Options o;
  o.epochs = epochs;
  o.warmup_epochs = warmup_epochs;
  return o;
}

TEST(ScheduleNotes, AWarmUpLongerThanTheRun) {
  EXPECT_EQ(schedule_notes(cosine(5, 4), 10, {}), Lines{});
  EXPECT_EQ(schedule_notes(cosine(5, 20), 10, {}),
            Lines{"warning: the warm-up lasts longer than the run: lr reaches 0.00025, not 0.001 "
                  "(--warmup-epochs, --epochs)"});
}

TEST(ScheduleNotes, ACosineThatEndsElsewhere) {
  Checkpoint at{.step = 25, .epoch = 2, .batch = 5, .options = {{"epochs", {"5"}}}};
  EXPECT_EQ(schedule_notes(cosine(5, 0), 10, at), Lines{});
  EXPECT_EQ(
      schedule_notes(cosine(10, 0), 10, at),
      Lines{"the cosine now ends with epoch 10, not 5: lr continues at 0.000854, not 0.0005"});
  Options constant = cosine(10, 0);
  constant.schedule = "constant";
  EXPECT_EQ(schedule_notes(constant, 10, at), Lines{});
  at.options.clear();  // of an earlier version
  EXPECT_EQ(schedule_notes(cosine(10, 0), 10, at), Lines{});
}

}  // namespace
}  // namespace bv::test
