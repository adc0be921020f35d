// Writing checkpoints while training continues.
#include "engine/run/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "engine/run/run.h"
#include "tests/engine/run/train_here.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

// Blocks the background thread from step `from` to step `to`, and records the saved steps.
class SlowDisk : public Hook {
 public:
  SlowDisk(int64_t from, int64_t to, Strings& saved) : from_(from), to_(to), saved_(saved) {}
  int priority() const override { return priority::measuring; }
  void after_train_iter(Run& run, StepRecord& record) override {
    if (record.step == from_)
      run.background.post([free = free_.get_future().share()] { free.wait(); });
    if (record.step == to_) free_.set_value();
  }
  void after_save(Run&, const SaveRecord& r) override {
    saved_.push_back(std::to_string(r.step) + (r.best ? " best" : ""));
  }

 protected:
  std::promise<void> free_;

 private:
  int64_t from_, to_;
  Strings& saved_;
};

class SavingBeside : public ShallowProgramTest {
 protected:
  // Epochs of five updates.
  void SetUp() override { make_cifar(in("data")); }
  Strings words(const Strings& more, const std::string& save_every = "1steps") const {
    Strings all{"vit_tiny", "--image-size", "32",      "--patch-size", "16",      "--data",
                in("data"), "--batch",      "8",       "--out",        in("run"), "--device",
                "cpu",      "--save-every", save_every};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(SavingBeside, ANewerOneReplacesTheOneThatWaits) {
  Strings saved;
  ASSERT_EQ(train_here(words({"--steps", "4", "--eval-every", "9", "--keep", "9"}),
                       list_of(std::make_unique<SlowDisk>(1, 4, saved))),
            0);
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.back(), "4 best");
  EXPECT_TRUE(is_last_checkpoint(in("run"), 4));
  for (const int step : {1, 2})
    EXPECT_FALSE(std::filesystem::exists(in("run/step-0000000" + std::to_string(step)))) << step;
}

// The best checkpoint, of step 5, waits while the disk is busy; those of steps 6 and 7 wait behind
// it or are replaced.
TEST_F(SavingBeside, TheBestIsNotReplaced) {
  Strings saved;
  std::thread release;
  class Releasing : public SlowDisk {
   public:
    Releasing(Strings& saved, std::thread& thread) : SlowDisk(5, 99, saved), thread_(thread) {}
    void after_train_epoch(bv::Run&, EpochRecord& r) override {
      if (r.epoch == 1)
        thread_ = std::thread([this] {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          free_.set_value();
        });
    }

   private:
    std::thread& thread_;
  };
  ASSERT_EQ(train_here(words({"--steps", "7", "--keep", "9", "--epochs", "2"}),
                       list_of(std::make_unique<Releasing>(saved, release))),
            0);
  release.join();
  EXPECT_TRUE(std::ranges::find(saved, "5 best") != saved.end()) << testing::PrintToString(saved);
  EXPECT_TRUE(std::filesystem::exists(in("run/step-00000005")));
}

// A checkpoint has the weights after its step, even if training has changed them since.
TEST_F(SavingBeside, WhatIsWrittenLateIsWhatTheStepLeft) {
  Strings saved;
  const auto weights = [this](int step) {
    return contents(in("run/step-0000000" + std::to_string(step) + "/weights.safetensors"));
  };
  ASSERT_EQ(train_here(words({"--steps", "2"}), {}), 0);
  const std::string undisturbed = weights(2);
  ASSERT_FALSE(undisturbed.empty());
  std::filesystem::remove_all(in("run"));
  class Late : public SlowDisk {
   public:
    using SlowDisk::SlowDisk;
    // Delays step 2's job until step 3 has computed gradients.
    void before_train_iter(bv::Run& run) override {
      if (run.progress.step != 3) return;
      free_.set_value();
      run.background.wait();
    }
  };
  ASSERT_EQ(train_here(words({"--steps", "5", "--keep", "9"}, "2steps"),
                       list_of(std::make_unique<Late>(2, 99, saved))),
            0);
  EXPECT_TRUE(weights(2) == undisturbed);
}

TEST_F(SavingBeside, AWaitEndsWithTheWritingOrItsTime) {
  Strings saved;
  std::vector<bool> there;  // whether the checkpoint exists: while the disk is busy, and after
  class Waiting : public SlowDisk {
   public:
    Waiting(Strings& saved, std::vector<bool>& there) : SlowDisk(5, 99, saved), there_(there) {}
    int priority() const override { return priority::closing; }  // after the save has begun
    void before_test(bv::Run& run) override {
      for (const double seconds : {.01, 60.}) {
        run.folder.wait(std::chrono::duration<double>(seconds));
        there_.push_back(is_last_checkpoint(run.setup.options.out, 5));
        if (there_.size() == 1) free_.set_value();
      }
    }

   private:
    std::vector<bool>& there_;
  };
  ASSERT_EQ(
      train_here(words({"--steps", "5"}, "1"), list_of(std::make_unique<Waiting>(saved, there))),
      0);
  EXPECT_EQ(there, (std::vector<bool>{false, true}));
}

TEST_F(SavingBeside, AFailureEndsTheRunByTheNextStep) {
  class FullDisk : public Hook {
   public:
    explicit FullDisk(int64_t& last) : last_(last) {}
    int priority() const override { return priority::measuring; }
    void after_train_iter(bv::Run& run, StepRecord& record) override {
      last_ = record.step;
      if (record.step == 3)
        run.background.post([] { throw RunError("disk full while saving step 3 to run"); });
      if (record.step == 3) run.background.wait();
    }

   private:
    int64_t& last_;
  };
  int64_t last = 0;
  EXPECT_THROW(train_here(words({"--epochs", "2"}), list_of(std::make_unique<FullDisk>(last))),
               RunError);
  testing::internal::GetCapturedStdout();
  EXPECT_LE(last, 4);
}

TEST(BackgroundJobs, RunInOrderAndTellTheFirstFailure) {
  Background background;
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) background.post([&done, i] { done.push_back(i); });
  background.post([] { throw RunError("first"); });
  background.post([] { throw RunError("second"); });
  background.wait();
  ASSERT_EQ(done.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_THROW(
      {
        try {
          background.check();
        } catch (const RunError& e) {
          EXPECT_STREQ(e.what(), "first");
          throw;
        }
      },
      RunError);
  EXPECT_NO_THROW(background.check());
}

}  // namespace
}  // namespace bv::test
