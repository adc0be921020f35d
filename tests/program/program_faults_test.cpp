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

}  // namespace
}  // namespace bv::test
