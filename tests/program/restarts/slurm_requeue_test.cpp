// A job of two tasks that Slurm requeues: after scontrol requeue or preemption (SIGTERM), or the
// loss of a node (SIGKILL), it runs the same command again, with SLURM_RESTART_COUNT.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <string>

#include "engine/files/checkpoint.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string command = on_vit + "--data synthetic --batch 4 --save-every 2steps ";

class SlurmRequeue : public ShallowProgramTest {
 protected:
  // Starts the tasks of an attempt as `srun` does.
  void start(const std::string& words, int restarts) {
    for (const int rank : {0, 1}) {
      ProgramOptions task{.environment = {{"SLURM_PROCID", std::to_string(rank)},
                                          {"SLURM_LOCALID", std::to_string(rank)},
                                          {"SLURM_NTASKS", "2"},
                                          {"SLURM_TASKS_PER_NODE", "2"},
                                          {"SLURM_NODEID", "0"},
                                          {"SLURM_STEP_ID", "0"},
                                          {"SLURM_JOB_ID", std::to_string(getpid())}}};
      if (restarts > 0)
        task.environment.emplace_back("SLURM_RESTART_COUNT", std::to_string(restarts));
      tasks_[size_t(rank)] = std::make_unique<Program>(folder_.path(), words, task);
    }
  }
  void end_all(int signal) {
    for (const auto& task : tasks_) kill(task->pid(), signal);
    for (const auto& task : tasks_) {
      EXPECT_EQ(task->wait().code, 128 + signal);
      EXPECT_FALSE(task->anyone_left());
    }
  }
  std::array<std::unique_ptr<Program>, 2> tasks_;
};

TEST_F(SlurmRequeue, TheSameCommandTrainsToTheEnd) {
  const std::string words = command + "--steps 1000000 --resume auto --out run";
  start(words, 0);
  ASSERT_TRUE(tasks_[0]->wait_for(in("run/last/state.json"), "crc32c"));
  end_all(SIGTERM);
  const int64_t stopped = load_checkpoint(in("run")).step;
  start(words, 1);
  ASSERT_TRUE(tasks_[0]->wait_for(in("run/metrics.jsonl"),
                                  "\"step\":" + std::to_string(stopped + 9) + ",\"loss\""));
  end_all(SIGKILL);
  const int64_t killed = load_checkpoint(in("run")).step;
  EXPECT_GE(killed, stopped);
  const std::string steps = std::to_string(killed + 2);
  start(command + "--steps " + steps + " --resume auto --out run", 2);
  for (const auto& task : tasks_) {
    const Finished end = task->wait();
    EXPECT_EQ(end.code, 0) << end.errors;
  }
  go("-n 2 " + command + "--steps " + steps + " --out whole");
  EXPECT_TRUE(contents(in("run/last/weights.safetensors")) ==
              contents(in("whole/last/weights.safetensors")));
  EXPECT_EQ(losses(in("run")), losses(in("whole")));
}

}  // namespace
}  // namespace bv::test
