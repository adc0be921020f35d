// The whole program with a model cut into stages, one of which dies, hangs or is asked to stop.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "kernels/devices/devices.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string on_cifar = "--data cifar --warmup-steps 2 --batch 8 --micro-batches 4 ";

class ProgramPipeline : public ProgramTest {
 protected:
  ProgramPipeline() { make_cifar(in("cifar")); }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (const std::string file : {"weights", "state", "ema"}) {
      const std::string path = "/last/" + file + ".safetensors";
      EXPECT_EQ(std::filesystem::exists(in(a + path)), std::filesystem::exists(in(b + path)));
      if (!std::filesystem::exists(in(a + path))) continue;
      EXPECT_TRUE(contents(in(a + path)) == contents(in(b + path))) << a << ", " << b << path;
    }
    for (const std::string member : {"loss", "top1", "grad_norm", "lr"})
      EXPECT_EQ(metric(in(a), "step", member), metric(in(b), "step", member)) << b;
    for (const std::string member : {"val_loss", "val_top1", "ema_loss", "ema_top1"})
      EXPECT_EQ(last_metric(in(a), "epoch", member), last_metric(in(b), "epoch", member)) << b;
  }
};

// On the stand-in, the hosts' waits in an evaluation, a stop, a save and a restart let the queued
// messages proceed.
class PipelineOnSimt : public ProgramPipeline {
 protected:
  void SetUp() override {
    if (!is_built(DeviceKind::simt)) GTEST_SKIP() << "not built";
    change_model("vit_tiny", "\"depth\": 12", "\"depth\": 4");
  }
  const std::string words_ = on_vit + on_cifar + "--device simt --timeout 120 ";
};

TEST_F(PipelineOnSimt, SavesStopsAndResumesWithReplicas) {
  const std::string words = words_ + "--optimizer sgd --epochs 3 --save-every 2steps ";
  go("-n 4 --pipeline 2 " + words + "--steps 7 --out whole");
  Program run(folder_.path(), "-n 4 --pipeline 2 " + words + "--steps 7 --out run");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.worker(1), SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  go("-n 4 --resume run");
  expect_same_files("whole", "run");
}

TEST_F(PipelineOnSimt, RestartsWhenAStageDies) {
  const std::string words =
      words_ + "--epochs 3 --steps 7 --save-every 1steps --max-restarts 2 -n 3 --pipeline 3 ";
  go(words + "--out whole");
  Program run(folder_.path(), words + "--out run");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":3,"));
  kill(run.worker(1), SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 0) << end.errors;
  expect_same_files("whole", "run");
}

TEST_F(ProgramPipeline, AStageThatDiesOrStops) {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 3");
  const std::string words = "-n 3 --pipeline 3 --micro-batches 2 " + on_vit +
                            "--data cifar --batch 4 --epochs 1000 --save-every 2steps --out run";
  for (const int signal : {SIGKILL, SIGSTOP})
    for (const int stage : {0, 1, 2}) {
      std::filesystem::remove_all(in("run"));
      // A death is detected without a timeout.
      const char* const timeout = signal == SIGKILL ? "3600" : "3";
      Program run(folder_.path(), words + " --timeout " + timeout);
      ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":3,"));
      const pid_t victim = run.worker(stage);
      kill(victim, signal);
      const Finished end = run.wait();
      const std::string rank = "rank " + std::to_string(stage);
      if (signal == SIGKILL) {
        EXPECT_EQ(end.code, 128 + SIGKILL);
        EXPECT_EQ(end.errors, rank + " was killed by SIGKILL (out of memory?)\n");
      } else {
        EXPECT_EQ(end.code, 1);
        EXPECT_TRUE(has(end.errors, rank + " has not answered for 3 s (--timeout)\n"))
            << end.errors;
      }
      EXPECT_FALSE(run.anyone_left());
    }
}

TEST_F(ProgramPipeline, AnyStageCanBeAskedToStop) {
  change_model("vit_tiny", "\"depth\": 12", "\"depth\": 3");
  Program run(folder_.path(), "-n 3 --pipeline 3 --micro-batches 2 " + on_vit +
                                  "--data cifar --batch 4 --epochs 1000 --out run");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.worker(1), SIGTERM);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(in("run/last/weights.safetensors")));
}

}  // namespace
}  // namespace bv::test
