// The whole program under faults: killed, stopped, on a full disk, diverging.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>

#include "engine/files/checkpoint.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

// A run that lasts until it is stopped.
const std::string endless = on_vit + "--data synthetic --batch 4 --steps 100000 --out run ";

class ProgramFaults : public ShallowProgramTest {
 protected:
  Finished resume(int64_t steps) const {
    return go("--resume run --steps " + std::to_string(steps));
  }
  // Expects the last checkpoint to be complete and finite. Returns its step.
  int64_t expect_checkpoint(const std::string& run) const {
    const Checkpoint c = load_checkpoint(in(run));
    const auto finite = [](float x) { return std::isfinite(x); };
    for (const auto& [name, tensor] : c.weights.tensors)
      EXPECT_TRUE(std::ranges::all_of(tensor.data, finite)) << name;
    return c.step;
  }
};

TEST_F(ProgramFaults, AWorkerThatIsKilled) {
  // The run is killed while it starts, in a step, and while a checkpoint is written.
  for (const std::string moment : {"", "\"step\":3,", "\"step\":4,"}) {
    std::filesystem::remove_all(in("run"));
    Program run(folder_.path(), "-n 2 " + endless + "--save-every 2steps --timeout 3600");
    const pid_t victim = run.worker(1);
    ASSERT_TRUE(moment.empty() || (run.wait_for(in("run/metrics.jsonl"), moment) &&
                                   run.wait_for(in("run/last/state.json"), "crc32c")));
    kill(victim, SIGKILL);
    const Finished end = run.wait();
    EXPECT_EQ(end.code, 128 + SIGKILL);
    EXPECT_EQ(end.errors, "rank 1 was killed by SIGKILL (out of memory?)\n");
    EXPECT_FALSE(run.anyone_left());
    EXPECT_TRUE(moment.empty() || expect_checkpoint("run") >= 2);
  }
  const int64_t step = expect_checkpoint("run");
  resume(step + 2);
  EXPECT_EQ(metric(in("run"), "step", "step").size(), size_t(step + 2));
}

TEST_F(ProgramFaults, ALauncherThatIsKilled) {
  Program run(folder_.path(), "-n 2 " + endless);
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.pid(), SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 128 + SIGKILL);
  EXPECT_FALSE(run.anyone_left());
}

// A signal goes to the launcher alone, as from a batch system, or to its process group, as from a
// terminal.
TEST_F(ProgramFaults, SignalsStopInOrder) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::filesystem::remove_all(in("run"));
    Program run(folder_.path(), "-n 2 " + endless);
    ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
    kill(signal == SIGTERM ? run.pid() : -run.pid(), signal);
    const Finished end = run.wait();
    EXPECT_EQ(end.code, 128 + signal);
    EXPECT_EQ(end.errors, "");
    EXPECT_FALSE(run.anyone_left());
    EXPECT_TRUE(has(end.output, "Resume with: ./launcher --resume run\n"));
    const int64_t step = expect_checkpoint("run");
    EXPECT_EQ(last_metric(in("run"), "step", "step"), std::to_string(step));
    EXPECT_TRUE(has(end.output, "stopped after step " + std::to_string(step)));
  }
  const int64_t step = expect_checkpoint("run");
  resume(step + 1);
  EXPECT_EQ(expect_checkpoint("run"), step + 1);
}

// Epochs of one update, so that a stop always comes at the end of an epoch.
TEST_F(ProgramFaults, AStopAtTheEndOfAnEpochLosesNoEvaluation) {
  make_cifar(in("cifar"));
  Program run(folder_.path(), on_vit + "--data cifar --batch 44 --epochs 100000 --out run");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  const int64_t step = expect_checkpoint("run");
  EXPECT_EQ(metric(in("run"), "epoch", "val_top1").size(), size_t(step - 1));
  resume(step);  // without a further update
  EXPECT_EQ(metric(in("run"), "epoch", "step").back(), std::to_string(step));
  EXPECT_NE(metric(in("run"), "epoch", "val_top1").back(), "null");
  EXPECT_GT(std::stod(metric(in("run"), "epoch", "lr").back()), 0);
  EXPECT_EQ(metric(in("run"), "step", "step").size(), size_t(step));
  resume(step + 1);
  EXPECT_EQ(metric(in("run"), "epoch", "val_top1").size(), size_t(step + 1));
}

TEST_F(ProgramFaults, RankZeroStoppedInASaveIsNoticed) {
  for (const std::string device : {"cpu", "simt"}) {
    std::filesystem::remove_all(in("run"));
    Program run(folder_.path(), "-n 2 --oversubscribe " + endless +
                                    "--save-every 1steps --timeout 2 --device " + device);
    const pid_t rank0 = run.worker(0);
    const auto saving = [this] { return std::filesystem::exists(in("run/.saving-step")); };
    bool stopped = false;
    while (!stopped) {
      ASSERT_TRUE(wait_until([&] { return saving() || run.has_ended(); }) && !run.has_ended());
      kill(rank0, SIGSTOP);
      ASSERT_TRUE(wait_until([&] { return state_of(rank0) == 'T'; }));
      stopped = saving();
      if (!stopped) kill(rank0, SIGCONT);
    }
    const Finished end = run.wait();
    EXPECT_EQ(end.code, 1);
    EXPECT_TRUE(has(end.errors, "rank 1: rank 0 has not answered for 2 s (--timeout)\n")) << device;
    EXPECT_FALSE(run.anyone_left());
  }
}

TEST_F(ProgramFaults, AFullDisk) {
  const SmallDisk disk(in("disk"), "10m");  // a checkpoint without moments takes 6 MB
  if (!disk.mounted()) GTEST_SKIP() << "can't mount a small disk here";
  const Finished end = run(on_vit + "--data synthetic --batch 4 --steps 6 " +
                           "--optimizer sgd --momentum 0 " + "--save-every 2steps --out disk/run");
  ASSERT_EQ(end.code, 1) << end.output << end.errors;
  ASSERT_TRUE(std::filesystem::exists(in("disk/run/last"))) << end.errors;
  // The save of step 4 fails. If saving is slower than training, a newer checkpoint may have
  // replaced that of step 4, or of step 2, while it waited.
  const int64_t kept = expect_checkpoint("disk/run");
  EXPECT_LT(kept, 6);
  EXPECT_TRUE(has(end.errors, "disk full while saving step ")) << end.errors;
  EXPECT_TRUE(has(end.errors, " to disk/run; the previous checkpoint disk/run/last (step " +
                                  std::to_string(kept) + ") is intact\n"))
      << end.errors;
}

TEST_F(ProgramFaults, ALossThatIsNotFinite) {
  const std::string diverging = on_vit + "--data synthetic --batch 4 --steps 9 --optimizer sgd " +
                                "--warmup-epochs 0 --save-every 1steps ";
  const Finished end = run("-n 2 " + diverging + "--lr 1e30 --out run");
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(
      end.errors.starts_with("step 2: the loss is not finite; the first such gradient is "
                             "that of patch_embed.proj.weight. Try a smaller --lr"))
      << end.errors;
  EXPECT_TRUE(has(end.errors, "run/last is the state after step 1\n"));
  EXPECT_EQ(expect_checkpoint("run"), 1);

  // An update that overflows is not saved.
  const Finished over = run(diverging + "--weight-decay 1e10 --lr 3e38 --out over");
  EXPECT_EQ(over.code, 1);
  EXPECT_TRUE(over.errors.starts_with("step 1: the update made ")) << over.errors;
  EXPECT_FALSE(has(over.errors, "rank 0 ended")) << over.errors;  // rank 0 is the only rank
  EXPECT_FALSE(std::filesystem::exists(in("over/last")));
}

// A run that ends before its first checkpoint keeps what it has written, and the next command in
// its folder says what can be done.
class ProgramWithoutACheckpoint : public ProgramFaults {
 protected:
  const std::string words_ = on_vit + "--data synthetic --batch 4 --steps 4 --optimizer sgd ";
  const std::set<std::string> written_ = {"config.json", "metrics.jsonl", "report.html",
                                          "report.json"};

  void expect_kept(const std::string& folder) const {
    std::set<std::string> names = names_in(in(folder));
    std::erase_if(names, [](const std::string& name) { return name.starts_with("events."); });
    EXPECT_EQ(names, written_);
    EXPECT_TRUE(has(contents(in(folder + "/report.html")), "Ended by an error: "));
  }
};

TEST_F(ProgramWithoutACheckpoint, ALossThatIsNotFiniteKeepsItsFolder) {
  const std::string diverging = words_ + "--warmup-epochs 0 ";
  for (const std::string n : {"", "-n 2 "}) {
    const Finished end = run(n + diverging + "--lr 1e30 --out run");
    EXPECT_EQ(end.code, 1);
    EXPECT_TRUE(end.errors.starts_with("step 2: the loss is not finite; ")) << end.errors;
    EXPECT_TRUE(has(end.errors, "; nothing to resume: run has no checkpoint\n")) << end.errors;
    expect_kept("run");
    EXPECT_TRUE(has(contents(in("run/metrics.jsonl")), "\"step\":1,"));
    const auto refused = [&](const std::string& words) {
      const Finished again = refuse(n + words);
      EXPECT_EQ(again.code, 2) << again.output;
      expect_kept("run");
      return again.errors;
    };
    EXPECT_EQ(refused(diverging + "--lr 1e30 --out run"),
              "--out run exists and has a run without a checkpoint: nothing to resume; another "
              "--out starts a new one, --resume run starts this one from the beginning\n");
    EXPECT_EQ(
        refused(diverging + "--lr 0.1 --resume run"),
        "--lr can't be changed with --resume: the run has 1e+30; leave it out, or start a new "
        "run with another --out (nothing to resume: run has no checkpoint)\n");
    const Finished resumed = run(n + "--resume run");
    EXPECT_EQ(resumed.code, 1);
    EXPECT_TRUE(has(resumed.output,
                    "nothing to resume: run has no checkpoint yet: starting from the "
                    "beginning\n"));
    expect_kept("run");
    std::filesystem::remove_all(in("run"));
    go(n + words_ + "--resume run");  // starts the run where there is none
    EXPECT_EQ(expect_checkpoint("run"), 4);
    std::filesystem::remove_all(in("run"));
  }
}

TEST_F(ProgramWithoutACheckpoint, ADiskThatIsFullKeepsItsFolder) {
  const SmallDisk disk(in("disk"), "2m");  // a checkpoint takes 6 MB
  if (!disk.mounted()) GTEST_SKIP() << "can't mount a small disk here";
  const Finished end = run(words_ + "--momentum 0 --save-every 2steps --out disk/run");
  EXPECT_EQ(end.code, 1) << end.output;
  EXPECT_TRUE(has(end.errors,
                  "; there is no earlier checkpoint; nothing to resume: disk/run has "
                  "none\n"))
      << end.errors;
  expect_kept("disk/run");
  EXPECT_TRUE(has(contents(in("disk/run/metrics.jsonl")), "\"step\":2,"));
}

TEST_F(ProgramWithoutACheckpoint, AProcessThatIsKilledKeepsItsFolder) {
  Program run(folder_.path(), "-n 2 " + endless);
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.worker(1), SIGKILL);
  EXPECT_EQ(run.wait().code, 128 + SIGKILL);
  EXPECT_TRUE(has(contents(in("run/metrics.jsonl")), "\"step\":2,"));
  EXPECT_TRUE(has(contents(in("run/config.json")), "vit_tiny"));
  resume(2);
  EXPECT_EQ(expect_checkpoint("run"), 2);
}

// A mistake in the data before the first step leaves nothing of a new folder, nor takes anything
// from one that was there.
TEST_F(ProgramWithoutACheckpoint, AMistakeBeforeTheFirstStepLeavesNoFolder) {
  make_class_folders(in("photos"), 2, 4);
  for (const char* file : {"class0/0", "class0/1", "class0/2", "class0/3", "class1/0", "class1/1",
                           "class1/2", "class1/3"}) {
    std::filesystem::remove(in(std::string("photos/") + file + ".ppm"));
    write_text(in(std::string("photos/") + file + ".png"),
               std::string("\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR\0\0\0\x28\0\0\0\x24", 24));
  }
  std::filesystem::create_directory(in("mine"));
  for (const std::string n : {"", "-n 2 "})
    for (const std::string folder : {"run", "mine"}) {
      const Finished end = refuse(n + on_vit + "--data photos --batch 4 --steps 4 --out " + folder);
      EXPECT_EQ(end.code, 2) << end.output;
      EXPECT_TRUE(has(end.errors, "PNG data is cut off")) << end.errors;
      EXPECT_FALSE(std::filesystem::exists(in("run")));
      EXPECT_EQ(names_in(in("mine")), std::set<std::string>{});
    }
}

}  // namespace
}  // namespace bv::test
