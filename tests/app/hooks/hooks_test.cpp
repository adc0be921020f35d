// Hooks: each point is called once per event, in order of priorities, and never makes the host
// wait.
#include "engine/run/hooks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "engine/run/run.h"
#include "tests/app/hooks/early_stop.h"
#include "tests/engine/run/train_here.h"
#include "tests/program/program.h"
#ifdef BAREVISION_SIMT
#include "simt/device/control.h"
#endif

namespace bv::test {
namespace {

// Records each call.
class Recorder : public Hook {
 public:
  Recorder(Strings& calls, std::vector<int64_t>& steps) : calls_(calls), steps_(steps) {}
  void after_hook_is_attached(Run&) override { note("after_hook_is_attached"); }
  void before_train(Run&) override { note("before_train"); }
  void after_train(Run&) override { note("after_train"); }
  void before_train_epoch(Run&) override { note("before_train_epoch"); }
  void after_train_epoch(Run&, EpochRecord&) override { note("after_train_epoch"); }
  void before_train_iter(Run&) override { note("before_train_iter"); }
  void after_train_iter(Run&, StepRecord& r) override {
    note("after_train_iter");
    steps_.push_back(r.step);
  }
  void before_test(Run&) override { note("before_test"); }
  void after_test(Run&, EpochRecord&) override { note("after_test"); }
  void before_test_epoch(Run&, bool) override { note("before_test_epoch"); }
  void after_test_epoch(Run&, bool, const EvaluationSums&) override { note("after_test_epoch"); }
  void before_test_iter(Run&, int64_t) override { note("before_test_iter"); }
  void after_test_iter(Run&, int64_t) override { note("after_test_iter"); }
  void after_save(Run&, const SaveRecord&) override { note("after_save"); }

 private:
  void note(const std::string& point) { calls_.push_back(point); }
  Strings& calls_;
  std::vector<int64_t>& steps_;
};

// Notes what an epoch's record contains when this hook is called, and each save.
class Finder : public Hook {
 public:
  Finder(Strings& found, std::string name, int number)
      : found_(found), name_(std::move(name)), priority_(number) {}
  int priority() const override { return priority_; }
  void after_train_epoch(Run&, EpochRecord& r) override {
    found_.push_back(name_ + (r.seconds > 0 ? " timed" : "") + (r.best ? " best" : ""));
  }
  void after_save(Run&, const SaveRecord& r) override {
    if (priority_ == priority::usual)
      found_.push_back("saved " + std::to_string(r.step) + (r.best ? " best" : ""));
  }

 private:
  Strings& found_;
  std::string name_;
  int priority_;
};

// Slows down the evaluation, and pretends that saving before it took a hundred seconds.
class Slow : public Hook {
 public:
  explicit Slow(std::vector<EpochRecord>& records) : records_(records) {}
  void before_test(Run& run) override { run.save_seconds += 100; }
  void before_test_iter(Run&, int64_t) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  void after_train_epoch(Run&, EpochRecord& r) override { records_.push_back(r); }

 private:
  std::vector<EpochRecord>& records_;
};

class HooksTest : public testing::Test {
 protected:
  // Epochs of five updates, evaluations of two batches.
  Strings words(const Strings& more) const {
    Strings all{"vit_tiny", "--image-size", "32", "--patch-size",    "16", "--data",
                data_,      "--batch",      "8",  "--warmup-epochs", "0",  "--out",
                out_,       "--epochs",     "3",  "--ema",           ".9"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void SetUp() override { make_cifar(data_); }

  TemporaryFolder folder_;
  std::string data_ = folder_ / "cifar", out_ = folder_ / "run";
};

TEST_F(HooksTest, EachPointOncePerEvent) {
  Strings calls;
  std::vector<int64_t> steps;
  for (const Strings& line : {words({"--steps", "8"}), Strings{"--resume", out_, "--steps", "99"}})
    ASSERT_EQ(train_here(line, list_of(std::make_unique<Recorder>(calls, steps))), 0);
  std::map<std::string, int> counts;
  for (const std::string& call : calls) ++counts[call];
  // The second epoch is split by a resume; both parts evaluate the weights and their average.
  const std::map<std::string, int> expected{
      {"after_hook_is_attached", 2}, {"before_train", 2},      {"after_train", 2},
      {"before_train_epoch", 4},     {"after_train_epoch", 4}, {"before_train_iter", 15},
      {"after_train_iter", 15},      {"before_test", 4},       {"after_test", 4},
      {"before_test_epoch", 8},      {"after_test_epoch", 8},  {"before_test_iter", 16},
      {"after_test_iter", 16},       {"after_save", 4}};
  EXPECT_EQ(counts, expected);
  std::vector<int64_t> each(15);
  for (int64_t i = 0; i < 15; ++i) each[size_t(i)] = i + 1;
  EXPECT_EQ(steps, each);
  const Strings first(calls.begin(), calls.begin() + 5);
  EXPECT_EQ(first, (Strings{"after_hook_is_attached", "before_train", "before_train_epoch",
                            "before_train_iter", "after_train_iter"}));
  EXPECT_EQ(calls.back(), "after_train");
}

TEST_F(HooksTest, LowerPrioritiesComeFirst) {
  Strings found;
  const auto finder = [&](const char* name, int number) {
    return std::make_unique<Finder>(found, name, number);
  };
  ASSERT_EQ(train_here(words({"--steps", "5"}),
                       list_of(finder("last", priority::closing), finder("first", -1),
                               finder("usual", priority::usual), finder("before it", 9))),
            0);
  EXPECT_EQ(found, (Strings{"first best", "before it timed best", "usual timed best",
                            "saved 5 best", "last timed best"}));
}

TEST_F(HooksTest, TimeIsOfAnEvaluationOrOfSavingOrElse) {
  std::vector<EpochRecord> records;
  ASSERT_EQ(train_here(words({"--steps", "5"}), list_of(std::make_unique<Slow>(records))), 0);
  ASSERT_EQ(records.size(), 1u);
  const EpochRecord& r = records[0];
  EXPECT_GE(*r.eval_seconds + 100, .4);  // two batches, for the weights and for their average
  EXPECT_LT(r.eval_seconds, 0);
  EXPECT_GT(r.save_seconds, 100);  // the run saves, too
  EXPECT_GE(r.seconds, *r.eval_seconds + r.save_seconds);
}

// The hook shown in docs/internals.md.
TEST_F(HooksTest, AUsersOwn) {
  const std::string text = contents("tests/app/hooks/early_stop.h");
  std::string indented;
  std::istringstream lines(text.substr(text.find("class EarlyStop")));
  for (std::string line; std::getline(lines, line);)
    indented += (line.empty() ? "" : "    " + line) + "\n";
  EXPECT_NE(contents("docs/internals.md").find(indented), std::string::npos);

  // At rate 0 the loss never improves, so the first evaluation stays the best.
  ASSERT_EQ(train_here(words({"--lr", "0"}), list_of(std::make_unique<EarlyStop>(1))), 0);
  EXPECT_EQ(last_metric(out_, "step", "step"), "10");
  EXPECT_EQ(load_checkpoint(out_).step, 10);
  EXPECT_EQ(metric(out_, "epoch", "val_loss").size(), 2u);
}

#ifdef BAREVISION_SIMT
class Waits : public Hook {
 public:
  explicit Waits(std::vector<size_t>& counts) : counts_(counts) {}
  int priority() const override { return priority::closing; }
  void after_train_iter(Run&, StepRecord&) override {
    counts_.push_back(simt::host_synchronizations());
  }

 private:
  std::vector<size_t>& counts_;
};

// Enqueues device work at the end of the last epoch.
class Enqueues : public Hook {
 public:
  explicit Enqueues(bool& done) : done_(done) {}
  int priority() const override { return priority::closing; }
  void after_train_epoch(Run& run, EpochRecord&) override {
    run.backend.call_on_host(nullptr, [this] { done_ = true; });
  }

 private:
  bool& done_;
};
class Expects : public Hook {
 public:
  explicit Expects(const bool& done) : done_(done) {}
  int priority() const override { return priority::measuring; }
  void after_train(Run&) override { EXPECT_TRUE(done_); }

 private:
  const bool& done_;
};

// The device has done all work before after_train, where hooks may wait for a save's copy.
TEST_F(HooksTest, AfterTrainTheDevicesWorkIsDone) {
  bool done = false;
  ASSERT_EQ(train_here(words({"--device", "simt", "--steps", "2"}),
                       list_of(std::make_unique<Enqueues>(done), std::make_unique<Expects>(done))),
            0);
  EXPECT_TRUE(done);
}

// With all hooks, each step waits once for the previous batch and once for the previous update.
TEST_F(HooksTest, NoHookMakesTheHostWait) {
  std::vector<size_t> waits;
  ASSERT_EQ(train_here(words({"--device", "simt", "--steps", "5", "--log-every", "1"}),
                       list_of(std::make_unique<Waits>(waits))),
            0);
  ASSERT_EQ(waits.size(), 5u);
  // In each step, the wait for the batch came before the wait for the update.
  for (size_t i = 1; i < 5; ++i)
    EXPECT_EQ(waits[i] - waits[i - 1], i < 4 ? 2u : 1u) << "step " << i + 1;
}
#endif

}  // namespace
}  // namespace bv::test
