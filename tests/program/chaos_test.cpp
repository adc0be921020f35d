// Runs that are killed, stopped, denied their files or contacted by strangers at random times, and
// resumed until they finish. A trial passes if the run then has the weights, or the losses, of an
// undisturbed run. `make test` runs a few trials; `make chaos SECONDS=1200` runs them for that
// long, TRIALS=200 ONLY=StoppedAtAnyMoment runs that many of one kind, and SEED=... repeats them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "engine/files/checkpoint.h"
#include "kernels/devices/devices.h"
#include "tests/comm/network.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

constexpr int steps = 8;
const std::string model = on_vit + "--data cifar --batch 6 --save-every 2steps --out run --keep 2 ";
// soon: detects a stopped process early. patient: for undisturbed runs, also on a busy machine.
const std::string soon = "--timeout 2 ", patient = "--timeout 60 ";
const std::string until = "--steps " + std::to_string(steps) + " ";

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

struct Tally {
  int tried = 0, survived = 0;
};

class Chaos : public ShallowProgramTest {
 protected:
  static void TearDownTestSuite() {
    if (number("BAREVISION_CHAOS_SECONDS", 0) == 0 && trials() == 0) return;
    std::printf("%-42s %8s %9s\n", "", "tried", "survived");
    for (const auto& [name, tally] : tallies())
      std::printf("%-42s %8d %9d\n", name.c_str(), tally.tried, tally.survived);
  }
  static std::map<std::string, Tally>& tallies() {
    static std::map<std::string, Tally> all;
    return all;
  }

  void SetUp() override {
    make_cifar(in("cifar"));
    random_.seed(unsigned(seed_));
  }

  // Runs a few trials, or trials for this test's share of the time.
  template <class Trial>
  void repeat(const std::string& name, int few, Trial trial) {
    const double share = number("BAREVISION_CHAOS_SECONDS", 0) / 13.0, start = seconds_now();
    if (trials() > 0) few = trials();
    Tally& tally = tallies()[name];
    for (int i = 0; share > 0 ? seconds_now() - start < share : i < few; ++i) {
      std::filesystem::remove_all(in("run"));
      ++tally.tried;
      trial(i);
      if (HasFailure()) {
        const std::string kept = "/tmp/barevision-chaos-" + std::to_string(getpid());
        std::filesystem::remove_all(kept);
        std::filesystem::copy(in("run"), kept,
                              std::filesystem::copy_options::recursive |
                                  std::filesystem::copy_options::copy_symlinks);
        FAIL() << name << ", trial " << i << ", seed " << seed_ << "; the run folder is in "
               << kept;
      }
      ++tally.survived;
    }
  }

  static int trials() { return number("BAREVISION_CHAOS_TRIALS", 0); }
  int below(int n) { return int(random_() % unsigned(n)); }

  // A kill may leave a whole checkpoint without the link to it: "step-00000002", but no "last".
  bool has_checkpoint() const {
    if (!std::filesystem::exists(in("run"))) return false;
    return std::ranges::any_of(std::filesystem::directory_iterator(in("run")), [](auto& entry) {
      return entry.path().filename().string().starts_with("step-");
    });
  }
  // A run that was killed before its first checkpoint begins again in its folder.
  std::string start_or_resume() const {
    const bool begun = has_checkpoint() || std::filesystem::exists(in("run/config.json"));
    return (begun ? "--resume run " : model + more_) + always_ + until;
  }

  // The undisturbed run.
  void reference(int processes) {
    std::filesystem::remove_all(in("run"));
    const double begin = seconds_now();
    go("-n " + std::to_string(processes) + " " + model + more_ + always_ + patient + until);
    undisturbed_ = seconds_now() - begin;
    losses_ = losses(in("run"));
    references_[processes] = contents(in("run/last/weights.safetensors"));
    std::filesystem::remove_all(in("run"));
  }
  void expect_same_weights(int processes) {
    EXPECT_TRUE(contents(in("run/last/weights.safetensors")) == references_.at(processes));
  }
  // Each step must be logged once, with the loss of the undisturbed run.
  void expect_losses(double tolerance) const {
    const std::vector<double> ours = losses(in("run"));
    ASSERT_EQ(ours.size(), losses_.size());
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_NEAR(ours[i], losses_[i], tolerance * std::abs(losses_[i])) << "step " << i + 1;
  }

  // One attempt, disturbed at a random moment. `changing`: with a random number of processes, on a
  // random device.
  void disturbed_attempt(bool changing) {
    const int processes = changing ? 1 + below(3) : 2;
    const bool simt = changing && is_built(DeviceKind::simt) && below(3) == 0;
    disturb(processes,
            std::string("--oversubscribe --precision fp32 --device ") + (simt ? "simt" : "cpu"),
            simt ? 4 : 1);
  }
  // Sleeps for a random time of at most `runs` times the measured duration of an undisturbed run,
  // which is longer on a slow machine.
  void pause_for_up_to(double runs) { usleep(unsigned(below(1 + int(runs * undisturbed_ * 1e6)))); }
  void disturb(int processes, const std::string& words, double runs) {
    Program run(folder_.path(),
                "-n " + std::to_string(processes) + " " + start_or_resume() + soon + words);
    const int act = below(6);
    pause_for_up_to(runs);
    const pid_t launcher = run.pid();
    const auto to_a_worker = [&](int signal) {
      if (const auto worker = run.worker_now(below(processes))) kill(*worker, signal);
    };
    if (act == 0) kill(launcher, SIGKILL);
    if (act == 1) kill(launcher, SIGTERM);
    if (act == 2) kill(-launcher, SIGINT);
    if (act == 3) to_a_worker(SIGKILL);
    if (act == 4) to_a_worker(SIGSTOP);
    if (act == 5) kill(launcher, SIGHUP);
    if (act == 4 && processes == 1) kill(launcher, SIGTERM);
    const Finished end = run.wait();
    EXPECT_NE(end.code, -1) << "still running after action " << act;
    EXPECT_NE(end.code, 2) << end.errors;
    EXPECT_FALSE(run.anyone_left());
  }

  // One attempt, in which the stage gets the signal if its process can still be found.
  void end_a_stage(const std::string& words, int stage, int signal) {
    Program run(folder_.path(), words + start_or_resume() + "--timeout 5 ");
    pause_for_up_to(1.5);
    const auto worker = run.worker_now(stage);  // none before it begins and after its end
    const bool found = worker && kill(*worker, signal) == 0;
    const Finished end = run.wait();
    EXPECT_FALSE(run.anyone_left());
    if (!found || end.code == 0) return;
    EXPECT_EQ(end.code, signal == SIGKILL ? 128 + SIGKILL : 1) << end.errors;
    // "answered for 5 s" or, if it was stopped while leaving, "ended 10 s after the others did".
    const std::string how = signal == SIGKILL ? " was killed by SIGKILL" : " has not ";
    EXPECT_TRUE(has(end.errors, "rank " + std::to_string(stage) + how)) << end.errors;
  }

  std::string more_;    // a new run's arguments, besides the model's
  std::string always_;  // arguments of a resumed run, too
  const int seed_ = number("BAREVISION_CHAOS_SEED", int(getpid()));
  std::mt19937 random_;
  std::map<int, std::string> references_;
  std::vector<double> losses_;
  double undisturbed_ = 6;  // seconds that the last undisturbed run took
};

TEST_F(Chaos, KilledAndResumedOnTheSameProcesses) {
  reference(2);
  repeat("killed and resumed: equal bits", 2, [&](int) {
    for (int attempt = 0; attempt < 3; ++attempt) disturbed_attempt(false);
    go("-n 2 " + patient + start_or_resume());
    expect_same_weights(2);
    expect_losses(0);
  });
}

TEST_F(Chaos, KilledAndResumedOnOthers) {
  reference(2);
  repeat("killed, resumed on others: equal losses", 1, [&](int) {
    for (int attempt = 0; attempt < 3; ++attempt) disturbed_attempt(true);
    go("-n 2 --device cpu " + patient + start_or_resume());
    EXPECT_EQ(load_checkpoint(in("run")).step, steps);
    expect_losses(2e-3);
  });
}

// Runs one process per stage: for any number of stages, the bits are those of one process.
TEST_F(Chaos, StagesKilledAndResumedAsOthers) {
  more_ = "--micro-batches 2 ";
  reference(1);
  const auto as_stages = [](int stages) { return "--pipeline " + std::to_string(stages) + " "; };
  repeat("stages killed, resumed as others: equal bits", 1, [&](int) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      const int stages = 1 + below(3);
      disturb(stages, as_stages(stages), 1.5);
    }
    const int stages = 1 + below(3);
    go("-n " + std::to_string(stages) + " " + patient + start_or_resume() + as_stages(stages));
    expect_same_weights(1);
    expect_losses(0);
  });
}

// A user stops a run at start, in a step, a save or an evaluation. With AVX2, oneDNN keeps data
// below the stack pointer, which signal handlers must not touch.
TEST_F(Chaos, StoppedAtAnyMoment) {
  const std::vector<std::pair<std::string, std::string>> avx2{{"ONEDNN_MAX_CPU_ISA", "AVX2"}};
  make_cifar(in("more"), 44, 64);
  const bool few = number("BAREVISION_CHAOS_SECONDS", 0) == 0 && trials() == 0;
  std::map<std::string, std::string> references;
  repeat("stopped at any moment: 128 + signal, equal bits", 2, [&](int i) {
    const int processes = few || i % 2 ? 2 : 1;
    const std::string which = i / 2 % 2 ? "resnet34" : "vit_tiny --patch-size 4";
    const std::string words = "-n " + std::to_string(processes) + " " + which +
                              " --data more --batch 8 --epochs 6 --save-every 3steps --out run";
    const auto last = [&] { return contents(in("run/last/weights.safetensors")); };
    const bool resumed = i % 5 == 0;
    if (resumed && !references.contains(words)) {
      const double begin = seconds_now();
      go(words, {.environment = avx2});
      undisturbed_ = seconds_now() - begin;
      references[words] = last();
      std::filesystem::remove_all(in("run"));
    }
    const int signal = i / 4 % 2 ? SIGINT : SIGTERM;
    Program run(folder_.path(), words, {.environment = avx2});
    pause_for_up_to(1);
    kill(signal == SIGINT ? -run.pid() : run.pid(), signal);
    const Finished end = run.wait();
    EXPECT_TRUE(end.code == 0 || end.code == 128 + signal) << end.code << ": " << end.errors;
    EXPECT_EQ(end.errors, "");
    EXPECT_FALSE(run.anyone_left());
    if (!resumed) return;
    const bool saved = std::filesystem::exists(in("run/last"));
    EXPECT_TRUE(saved || !std::filesystem::exists(in("run"))) << "a folder without a checkpoint";
    if (end.code != 0)
      go(saved ? "-n " + std::to_string(processes) + " --resume run" : words,
         {.environment = avx2});
    EXPECT_TRUE(last() == references.at(words));
  });
}

// An epoch's checkpoint exists once `last` names it, whatever happens to the evaluation.
TEST_F(Chaos, KilledInASaveOrAnEvaluation) {
  make_cifar(in("more"), 44, 160);
  constexpr int updates = 5, epochs = 4;  // updates per epoch
  const std::string words =
      "-n 1 vit_tiny --patch-size 4 --data more --batch 8 --out run --epochs " +
      std::to_string(epochs);
  const auto last = [&] { return contents(in("run/last/weights.safetensors")); };
  const auto epoch_lines = [&] { return metric(in("run"), "epoch", "step"); };
  const double begin = seconds_now();
  go(words);
  const double epoch = (seconds_now() - begin) / epochs;  // in seconds
  const std::string reference = last();
  const std::vector<std::string> lines = epoch_lines();
  std::filesystem::remove_all(in("run"));
  repeat("killed in a save or an evaluation: equal bits", 2, [&](int i) {
    const bool in_save = i % 2;
    const int64_t step = updates * (1 + below(epochs - 1));
    Program run(folder_.path(), words);
    // The line is written just before the save.
    ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":" + std::to_string(step) + ","));
    ASSERT_TRUE(in_save || wait_until([&] { return is_last_checkpoint(in("run"), step); }));
    usleep(unsigned(below(1 + int(epoch * 1e6 / (in_save ? 12 : 6)))));
    const int64_t saved = is_last_checkpoint(in("run"), step) ? step : step - updates;
    kill(-run.pid(), SIGKILL);
    run.wait();
    EXPECT_TRUE(in_save || saved == step) << saved;
    const Finished end = go(saved > 0 ? "-n 1 --resume run" : words);
    const std::string resumed = "resumed after step ";
    const size_t at = end.output.find(resumed);
    ASSERT_EQ(at != end.output.npos, saved > 0) << end.output;
    if (saved > 0) {
      EXPECT_GE(std::stoll(end.output.substr(at + resumed.size())), saved);
    }
    EXPECT_EQ(epoch_lines(), lines);
    EXPECT_TRUE(last() == reference);
  });
}

// Any stage is killed or stopped at any time: the run ends soon, names the stage and, resumed,
// reaches the bits of one undisturbed process. `make test` kills and stops stages at one moment
// only (pipeline_program_test.cpp).
TEST_F(Chaos, StagesKilledOrStopped) {
  if (number("BAREVISION_CHAOS_SECONDS", 0) == 0) GTEST_SKIP() << "in make chaos";
  for (const std::string device : {"cpu", "simt"}) {
    if (device == "simt" && !is_built(DeviceKind::simt)) continue;
    more_ = "--micro-batches 2 ";
    always_ = "--device " + device + " --precision fp32 ";
    reference(1);
    for (const int stages : {2, 3}) {
      const std::string words =
          "-n " + std::to_string(stages) + " --pipeline " + std::to_string(stages) + " ";
      repeat(std::to_string(stages) + " stages on " + device + " killed or stopped: equal bits", 0,
             [&](int i) {
               end_a_stage(words, below(stages), i % 2 ? SIGSTOP : SIGKILL);
               go(words + patient + start_or_resume());
               expect_same_weights(1);
               expect_losses(0);
             });
    }
  }
}

// Every call that changes a file fails once, or its process is killed there.
TEST_F(Chaos, FileCallsThatFail) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the shim doesn't go with the address sanitizer";
#endif
  reference(1);
  const std::string shim = std::filesystem::path(own_path()).parent_path() / "file_faults.so";
  const auto with_fault = [&](int at, int fault) {
    const auto text = [](int n) { return std::to_string(n); };
    return run_program(folder_.path(), "-n 1 " + model + until,
                       {.environment = {{"LD_PRELOAD", shim},
                                        {"FILE_FAULT_AT", text(at)},
                                        {"FILE_FAULT", text(fault)},
                                        {"FILE_FAULT_COUNT", in("calls")}}});
  };
  ASSERT_EQ(with_fault(0, 0).code, 0);
  const int calls = std::atoi(contents(in("calls")).c_str());
  ASSERT_GT(calls, 60);
  const bool few = number("BAREVISION_CHAOS_SECONDS", 0) == 0;
  const int first = below(few ? calls / 4 : 1);
  repeat("a file call fails, or is the last", 4, [&](int i) {
    const int at = 1 + (first + i / 3 + (few ? i * calls / 4 : 0)) % calls;
    const int fault = std::array{0, ENOSPC, EIO}[size_t(i) % 3];
    const Finished end = with_fault(at, fault);
    SCOPED_TRACE("call " + std::to_string(at) + ", errno " + std::to_string(fault) + ": " +
                 end.errors);
    EXPECT_TRUE(end.code == 0 || end.code == 1 || end.code == 2 || end.code == 128 + SIGKILL)
        << end.code;
    EXPECT_LE(std::ranges::count(end.errors, '\n'), fault == 0 ? 1 : 2);
    go("-n 1 " + start_or_resume());
    expect_same_weights(1);
  });
}

TEST_F(Chaos, StrangersAtThePort) {
  if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
  repeat("two machines among strangers", 1, [&](int) {
    const int port = free_port();
    const auto machine = [&](int rank) {
      return std::make_unique<Program>(
          folder_.path(), on_vit + "--data synthetic --batch 2 --steps 2 --device simt --out run",
          ProgramOptions{.environment = {{"RANK", std::to_string(rank)},
                                         {"WORLD_SIZE", "2"},
                                         {"LOCAL_RANK", "0"},
                                         {"LOCAL_WORLD_SIZE", "1"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(port)}}});
    };
    const auto first = machine(0);
    const unsigned seed = random_();
    const Child strangers([port, seed] {
      std::mt19937 random(seed);
      std::vector<Socket> open;
      for (;; usleep(2000)) {
        Socket made(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const sockaddr_in address = loopback(port + 1);
        if (connect(made.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
            errno != EINPROGRESS)
          continue;
        std::string noise(random() % 100, '\0');
        for (char& c : noise) c = char(random());
        if (send(made.fd(), noise.data(), noise.size(), MSG_NOSIGNAL) < 0) continue;
        if (open.size() < 200)
          open.push_back(std::move(made));
        else
          open[random() % open.size()] = std::move(made);
      }
      return 0;
    });
    usleep(unsigned(below(1000000)));
    const auto second = machine(1);
    EXPECT_EQ(first->wait().code, 0);
    EXPECT_EQ(second->wait().code, 0);
    EXPECT_EQ(load_checkpoint(in("run")).step, 2);
  });
}

TEST_F(Chaos, TwoRunsInOneFolder) {
  reference(1);
  repeat("two runs in one folder", 2, [&](int i) {
    const bool resumed = i % 2;
    if (resumed) go("-n 1 " + model + "--steps 4");
    const std::string words = "-n 1 " + start_or_resume();
    Program one(folder_.path(), words), other(folder_.path(), words);
    const Finished a = one.wait(), b = other.wait();
    EXPECT_TRUE(a.code == 0 || b.code == 0) << a.errors << b.errors;
    for (const Finished& end : {a, b})
      EXPECT_TRUE(end.code == 0 || end.code == 2) << end.code << end.errors;
    go("-n 1 --resume run " + until);
    expect_same_weights(1);
    expect_losses(0);
  });
}

TEST_F(Chaos, ReadersThatStall) {
  reference(2);
  repeat("a reader that stalls", 1, [&](int) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Socket reader(ends[0]), writer(ends[1]);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    const std::string filled(size_t(below(4097)), '.');
    ASSERT_EQ(write(ends[1], filled.data(), filled.size()), ssize_t(filled.size()));
    const Finished end =
        run_program(folder_.path(), "-n 2 " + model + patient + until, {.output = ends[1]});
    EXPECT_EQ(end.code, 0) << end.errors;
    expect_same_weights(2);
  });
}

}  // namespace
}  // namespace bv::test
