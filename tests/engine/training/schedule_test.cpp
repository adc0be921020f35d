// The learning rate: compared with PyTorch's and timm's schedulers; wrong options; warnings.
#include "engine/training/schedule.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/options/config.h"
#include "tests/files.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

using Lines = std::vector<std::string>;

Options options(const std::string& json, Source source = Source::command_line) {
  Options o;
  for (const auto& [name, items] : parse_config(json, "options")) {
    assign(o, *find_option(name), items, name);
    o.sources[name] = source;
  }
  return o;
}

TEST(Schedule, IsPyTorchsAndTimmsOverAThousandEpochs) {
  const auto cases = nlohmann::json::parse(contents("tests/golden/training/schedule.json"));
  ASSERT_EQ(cases.size(), 14u);
  for (const auto& c : cases) {
    const bool by_update = c.contains("updates");
    const int64_t updates = by_update ? c["updates_per_epoch"].get<int64_t>() : 7;
    Options o = options(c["options"].dump());
    check_schedule(o);
    const Schedule schedule = schedule_of(o, o.epochs, updates);
    for (const auto& [t, lr] :
         c[by_update ? "updates" : "lr"].get<std::vector<std::pair<int64_t, double>>>()) {
      const int64_t first = by_update ? t : t * updates;
      EXPECT_NEAR(schedule.at(first, first / updates), lr, 1e-9 * o.lr)
          << c["scheduler"] << " " << t;
      if (by_update) continue;
      EXPECT_EQ(schedule.at(first + updates - 1, t), schedule.at(first, t));  // held
    }
  }
}

TEST(Schedule, WarmsUpThenFollowsTheCosine) {
  const Schedule s{.curve = Curve::cosine,
                   .lr = 2,
                   .total_updates = 110,
                   .warmup_updates = 10,
                   .updates_per_epoch = 20};
  EXPECT_DOUBLE_EQ(s.at(0, 0), .2);
  EXPECT_DOUBLE_EQ(s.at(9, 0), 2);
  EXPECT_DOUBLE_EQ(s.at(10, 0), 2);
  EXPECT_NEAR(s.at(60, 3), 1, 1e-12);
  EXPECT_NEAR(s.at(109, 5), 2 * .5 * (1 + std::cos(3.14159265358979 * .99)), 1e-9);
  EXPECT_NEAR(s.at(500, 25), 0, 1e-12);  // beyond the horizon
}

TEST(Schedule, ByEpochHoldsThroughTheEpoch) {
  const Schedule s{.curve = Curve::cosine,
                   .by_epoch = true,
                   .lr = 1,
                   .total_updates = 80,
                   .warmup_updates = 20,
                   .updates_per_epoch = 10};
  EXPECT_DOUBLE_EQ(s.at(3, 0), .5);
  EXPECT_DOUBLE_EQ(s.at(9, 0), .5);
  EXPECT_DOUBLE_EQ(s.at(10, 1), 1);
  EXPECT_NEAR(s.at(55, 5), .5, 1e-12);
}

TEST(Schedule, ConstantAfterWarmup) {
  const Schedule s{.lr = 3, .total_updates = 10, .warmup_updates = 2, .updates_per_epoch = 5};
  EXPECT_DOUBLE_EQ(s.at(0, 0), 1.5);
  EXPECT_DOUBLE_EQ(s.at(9, 1), 3);
}

// A decay begins with its epoch, whether the schedule counts updates or epochs.
TEST(Schedule, MilestonesAreEpochsFromOne) {
  Schedule s{.curve = Curve::multistep, .lr = 1, .updates_per_epoch = 10, .milestones = {2, 4}};
  for (const bool by_epoch : {false, true}) {
    s.by_epoch = by_epoch;
    EXPECT_DOUBLE_EQ(s.at(9, 0), 1);
    EXPECT_DOUBLE_EQ(s.at(10, 1), .1);
    EXPECT_DOUBLE_EQ(s.at(29, 2), .1);
    EXPECT_NEAR(s.at(30, 3), .01, 1e-15);
  }
}

TEST(Schedule, WhatContradictsItself) {
  const auto refused = [](const std::string& json, const std::string& line) {
    Options o = options(json);
    EXPECT_EQ(error_of([&] { check_schedule(o); }), line) << json;
  };
  refused(R"({"schedule": "constant", "period_epochs": 20})",
          "--period-epochs needs --schedule cosine, not constant");
  refused(R"({"schedule": "step", "decay_epochs": 2, "min_lr": 1e-6})",
          "--min-lr needs --schedule cosine or poly, not step");
  refused(R"({"decay_epochs": 2})", "--decay-epochs needs --schedule step, not cosine");
  refused(R"({"decay_milestones": [2]})",
          "--decay-milestones needs --schedule multistep, not cosine");
  refused(R"({"decay_rate": 0.5})",
          "--decay-rate needs --schedule step or multistep or poly, not cosine");
  refused(R"({"schedule": "step"})",
          "--schedule step needs --decay-epochs, from one decay to the next");
  refused(R"({"schedule": "multistep"})",
          "--schedule multistep needs --decay-milestones: A,B,.. in epochs");
  for (const char* milestones : {"[3, 2]", "[2, 5, 5]"})
    refused(R"({"schedule": "multistep", "decay_milestones": )" + std::string(milestones) + "}",
            "--decay-milestones must increase: each later than the previous one");
  refused(R"({"lr": 1e-4, "min_lr": 2e-4})", "--min-lr 0.0002 is above --lr 0.0001");
  refused(R"({"epochs": 10, "lr_after": "10:1e-6"})",
          "--lr-after 10:1e-6 never begins: the run ends after 10 epochs (--epochs)");
  for (const char* text : {"600", "600:", ":1e-6", "0:1", "1.5:1", "5:-1", "5:1:1", "5:x"})
    EXPECT_EQ(error_of([&] { options(R"({"lr_after": ")" + std::string(text) + "\"}"); }),
              "options: 'lr_after' " + std::string(text) +
                  ": must be a number of epochs and a learning rate, like 600:1e-6");
}

// A recipe's options for its own schedule are dropped if the user chooses another schedule.
TEST(Schedule, ARecipesOptionsGoWithItsSchedule) {
  Options o = options(R"({"schedule": "multistep", "decay_milestones": [2, 3], "decay_rate": 0.2})",
                      Source::recipe);
  o.schedule = Curve::step;
  o.decay_epochs = 2;
  check_schedule(o);
  EXPECT_TRUE(o.decay_milestones.empty());
  EXPECT_EQ(o.decay_rate, .2);
}

// A config file's options are dropped if the command line chooses another schedule, rate or length.
TEST(Schedule, AFilesOptionsGiveWayToTheCommandLine) {
  const auto changed = [](const std::string& file, const std::string& line) {
    Options o = options(file, Source::config);
    for (const auto& [name, items] : parse_config(line, "line")) {
      assign(o, *find_option(name), items, name);
      o.sources[name] = Source::command_line;
    }
    check_schedule(o);
    return o;
  };
  EXPECT_EQ(changed(R"({"min_lr": 1e-6})", R"({"schedule": "constant"})").min_lr, 0);
  EXPECT_EQ(changed(R"({"lr": 1e-3, "min_lr": 1e-5})", R"({"lr": 1e-6})").min_lr, 0);
  EXPECT_FALSE(changed(R"({"lr_after": "600:1e-6"})", R"({"epochs": 2})").lr_after);
  for (const char* line : {R"({"min_lr": 1e-2})", R"({"min_lr": 1e-2, "lr": 1e-3})"})
    EXPECT_EQ(error_of([&] { changed(R"({"lr": 1e-3})", line); }),
              "--min-lr 0.01 is above --lr 0.001");
  EXPECT_EQ(error_of([&] { changed(R"({"schedule": "constant"})", R"({"min_lr": 1e-6})"); }),
            "--min-lr needs --schedule cosine or poly, not constant");
}

TEST(Schedule, InWords) {
  const auto text = [](const std::string& json) { return schedule_text(options(json)); };
  EXPECT_EQ(text("{}"), "cosine");
  EXPECT_EQ(text(R"({"period_epochs": 20, "min_lr": 1e-6, "lr_after": "600:1e-6"})"),
            "cosine (period 20 epochs, minimum 1e-06), then 1e-06 from epoch 601");
  EXPECT_EQ(text(R"({"schedule": "step", "decay_epochs": 30})"), "step (x 0.1 every 30 epochs)");
  EXPECT_EQ(text(R"({"schedule": "multistep", "decay_milestones": [30, 60], "decay_rate": 0.5})"),
            "multistep (x 0.5 as epochs 30, 60 begin, PyTorch's milestones 29, 59)");
  EXPECT_EQ(text(R"({"schedule": "poly", "decay_rate": 0.9, "min_lr": 0.01})"),
            "poly (power 0.9, minimum 0.01)");
}

Options cosine(double epochs, double warmup_epochs) {
  Options o;
  o.epochs = epochs;
  o.warmup_epochs = warmup_epochs;
  return o;
}

TEST(ScheduleNotes, AWarmUpLongerThanTheRun) {
  const Checkpoint resumed{.options = {{"seed", {"0"}}}};
  EXPECT_EQ(schedule_notes(cosine(5, 4), 10, resumed), Lines{});
  EXPECT_EQ(schedule_notes(cosine(5, 20), 10, {}), Lines{});  // the recipe check reports it
  EXPECT_EQ(schedule_notes(cosine(5, 20), 10, resumed),
            Lines{"warning: the warm-up lasts longer than the run: lr reaches 0.00025, not 0.001 "
                  "(--warmup-epochs, --epochs)"});
}

TEST(ScheduleNotes, ACurveThatEndsElsewhere) {
  Checkpoint at{.step = 25, .epoch = 2, .batch = 5, .options = {{"epochs", {"5"}}}};
  EXPECT_EQ(schedule_notes(cosine(5, 0), 10, at), Lines{});
  EXPECT_EQ(
      schedule_notes(cosine(10, 0), 10, at),
      Lines{"the cosine now ends with epoch 10, not 5: lr continues at 0.000854, not 0.0005"});
  Options other = cosine(10, 0);
  other.schedule = Curve::poly;
  other.decay_rate = 1;
  EXPECT_EQ(
      schedule_notes(other, 10, at),
      Lines{"the polynomial now ends with epoch 10, not 5: lr continues at 0.00075, not 0.0005"});
  other.schedule = Curve::constant;
  EXPECT_EQ(schedule_notes(other, 10, at), Lines{});
  other = cosine(10, 0);
  other.period_epochs = 2;  // ends at the same epoch
  EXPECT_EQ(schedule_notes(other, 10, at), Lines{});
  at.options.clear();  // written by an earlier version
  EXPECT_EQ(schedule_notes(cosine(10, 0), 10, at), Lines{});
}

}  // namespace
}  // namespace bv::test
