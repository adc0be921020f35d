// Stop signals: which threads and programs receive them, and how an evaluation reacts.
#include "base/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/other_program.h"
#include "engine/files/checkpoint.h"
#include "engine/run/run.h"
#include "tests/comm/processes.h"
#include "tests/engine/run/train_here.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

bool caught(int number) {
  return wait_until([] { return stop_signal() != 0; }) && stop_signal() == number;
}

// Whether stop signals are blocked in this thread and have no handler.
bool is_spared() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (!sigismember(&blocked, number) || action.sa_handler != SIG_DFL) return false;
  }
  return true;
}

TEST(StopSignals, NoThreadIsInterrupted) {
  Child program([] {
    hold_stop_signals();
    catch_stop_signals();
    bool spared = is_spared();
    std::thread([&] { spared = spared && is_spared(); }).join();
    return spared ? 0 : 1;
  });
  EXPECT_EQ(program.wait().code, 0);
}

TEST(StopSignals, OneBeforeTheFirstThreadIsKept) {
  Child program([] {
    hold_stop_signals();
    kill(getpid(), SIGTERM);
    usleep(10000);
    catch_stop_signals();
    return caught(SIGTERM) ? 0 : 1;
  });
  EXPECT_EQ(program.wait().code, 0);
}

TEST(StopSignals, AnIgnoredHangupStaysIgnored) {
  Child program([] {
    std::signal(SIGHUP, SIG_IGN);
    hold_stop_signals();
    catch_stop_signals();
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGINT);
    return caught(SIGINT) ? 0 : 1;
  });
  EXPECT_EQ(program.wait().code, 0);
}

TEST(StopSignals, EndAtOnceAfterCleaningUp) {
  Child program([] {
    hold_stop_signals();
    const EndsOnStopSignals starting([] { EXPECT_EQ(write(STDERR_FILENO, "cleaned", 7), 7); });
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::minutes(1));
    return 1;
  });
  const Ending end = program.wait();
  EXPECT_EQ(end.code, 128 + SIGTERM);
  EXPECT_EQ(end.errors, "cleaned");
}

TEST(StopSignals, AreCaughtOnceTheStartIsOver) {
  Child program([] {
    hold_stop_signals();
    {
      const EndsOnStopSignals starting([] { _exit(2); });
    }
    kill(getpid(), SIGINT);
    return caught(SIGINT) ? 0 : 1;
  });
  EXPECT_EQ(program.wait().code, 0);
}

TEST(StopSignals, ChildProgramsHaveTheMaskOfTheStart) {
  Child program([] {
    const auto mask = [] {  // of another program, as the system shows it
      return run_to_end({"grep", "SigBlk", "/proc/self/status"}, [] { return true; }).output;
    };
    const std::string before = mask();
    hold_stop_signals();
    return before.starts_with("SigBlk") && mask() == before ? 0 : 1;
  });
  EXPECT_EQ(program.wait().code, 0);
}

// Calls act(run) in an evaluation, before its second batch.
class InAnEvaluation : public Hook {
 public:
  explicit InAnEvaluation(std::function<void(Run&)> act) : act_(std::move(act)) {}
  void before_test_iter(Run& run, int64_t batch) override {
    if (batch > 1) _exit(3);  // the evaluation didn't stop
    if (batch == 1) act_(run);
  }

 private:
  std::function<void(Run&)> act_;
};

// Records the step at which a resumed run begins, and its first hook calls.
class Beginning : public Hook {
 public:
  explicit Beginning(Strings& points) : points_(points) {}
  void before_train(Run& run) override { note("step " + std::to_string(run.progress.step)); }
  void before_test(Run&) override { note("test"); }
  void before_train_epoch(Run&) override { note("epoch"); }

 private:
  void note(const std::string& point) {
    if (points_.size() < 3) points_.push_back(point);
  }
  Strings& points_;
};

class StoppedEvaluation : public ShallowProgramTest {
 protected:
  // Five updates per epoch, five batches per evaluation.
  void SetUp() override { make_cifar(in("data"), 44, 40); }
  Strings words(const std::string& out) const {
    return {"vit_tiny", "--image-size", "32", "--patch-size", "16", "--data",
            in("data"), "--batch",      "8",  "--epochs",     "3",  "--out",
            in(out),    "--device",     "cpu"};
  }
  void expect_equal(const std::string& one, const std::string& other) const {
    for (const char* member : {"step", "train_loss", "val_loss", "val_top1"})
      EXPECT_EQ(metric(in(one), "epoch", member), metric(in(other), "epoch", member)) << member;
    EXPECT_EQ(losses(in(one)), losses(in(other)));
    for (const char* file : {"last/weights.safetensors", "last/state.json", "best/state.json"})
      EXPECT_TRUE(contents(in(one) + "/" + file) == contents(in(other) + "/" + file)) << file;
  }
  // Ends a run during an evaluation, resumes it and compares it with an undisturbed run.
  void end_and_resume(const std::function<void(bv::Run&)>& act, int code) {
    Child run([&] {
      hold_stop_signals();
      catch_stop_signals();
      return train_here(words("run"), list_of(std::make_unique<InAnEvaluation>(act)));
    });
    EXPECT_EQ(run.wait().code, code);
    ASSERT_TRUE(is_last_checkpoint(in("run"), 5));
    EXPECT_TRUE(metric(in("run"), "epoch", "step").empty());
    Strings points;
    ASSERT_EQ(train_here({"--resume", in("run")}, list_of(std::make_unique<Beginning>(points))), 0);
    EXPECT_EQ(points, (Strings{"step 5", "test", "epoch"}));
    ASSERT_EQ(train_here(words("alone"), {}), 0);
    expect_equal("run", "alone");
  }
};

TEST_F(StoppedEvaluation, EndsAtTheNextBatchAndIsMadeAgain) {
  end_and_resume(
      [](bv::Run&) {
        kill(getpid(), SIGTERM);
        if (!caught(SIGTERM)) _exit(4);
      },
      128 + SIGTERM);
}

TEST_F(StoppedEvaluation, KilledWithTheEpochSaved) {
  end_and_resume(
      [](bv::Run& run) {
        run.background.wait();
        kill(getpid(), SIGKILL);
      },
      128 + SIGKILL);
}

}  // namespace
}  // namespace bv::test
