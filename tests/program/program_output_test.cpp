// The program's standard streams and signals: readers that stall or leave, closed descriptors, a
// terminal that hangs up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "comm/net/socket.h"
#include "engine/files/checkpoint.h"
#include "tests/program/program.h"

namespace bv::test {
namespace {

const std::string two = "-n 2 " + on_vit + "--data synthetic --batch 4 --out run ";

class ProgramOutput : public ShallowProgramTest {
 protected:
  void expect_steps(int steps) const {
    EXPECT_EQ(metric(in("run"), "step", "step").size(), size_t(steps));
    EXPECT_EQ(load_checkpoint(in("run")).step, steps);
  }
};

// A reader that stalls: a pager, a terminal after Ctrl-S, or a log collector that hangs.
TEST_F(ProgramOutput, AReaderThatStallsHoldsUpNothing) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Socket reader(ends[0]), writer(ends[1]);
  fcntl(ends[1], F_SETPIPE_SZ, 4096);
  const std::string filled(4096, '.');
  ASSERT_EQ(write(ends[1], filled.data(), filled.size()), ssize_t(filled.size()));
  const Finished end = run_program(folder_.path(), two + "--steps 4", {.output = ends[1]});
  EXPECT_EQ(end.code, 0) << end.errors;
  expect_steps(4);
}

// As in `launcher ... | head`.
TEST_F(ProgramOutput, AReaderThatLeavesDoesntEndTheRun) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Socket writer(ends[1]);
  close(ends[0]);
  const Finished end = run_program(folder_.path(), two + "--steps 4", {.output = ends[1]});
  EXPECT_EQ(end.code, 0) << end.errors;
  expect_steps(4);
}

// Files that the program opens must not become standard descriptors: a progress line would be
// written into the ranks' shared memory, or into metrics.jsonl.
TEST_F(ProgramOutput, ClosedDescriptorsReachNoFile) {
  for (const std::vector<int>& closed : std::vector<std::vector<int>>{{1}, {0, 1}, {0, 1, 2}}) {
    std::filesystem::remove_all(in("run"));
    const Finished end = run_program(folder_.path(), two + "--steps 3", {.closed = closed});
    EXPECT_EQ(end.code, 0) << end.errors;
    expect_steps(3);
    for (const std::string line : {"vit_tiny", "step 1/3"})
      EXPECT_FALSE(has(contents(in("run/metrics.jsonl")), line));
  }
}

TEST_F(ProgramOutput, AHangUpStopsInOrder) {
  Program run(folder_.path(), two + "--steps 100000");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.pid(), SIGHUP);
  EXPECT_EQ(run.wait().code, 128 + SIGHUP);
  expect_steps(int(load_checkpoint(in("run")).step));
}

// Slurm's --signal=USR1, sent before a job's time limit.
TEST_F(ProgramOutput, AUserSignalStopsInOrder) {
  Program run(folder_.path(), two + "--steps 100000");
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(run.pid(), SIGUSR1);
  EXPECT_EQ(run.wait().code, 128 + SIGUSR1);
  expect_steps(int(load_checkpoint(in("run")).step));
}

// Every update of a short run has a line.
TEST_F(ProgramOutput, AShortRunLogsAllItsSteps) {
  go("vit_tiny --image-size 32 --patch-size 16 --device cpu --data synthetic --batch 4 --out run "
     "--steps 12");
  expect_steps(12);
  EXPECT_TRUE(has(contents(in("run/config.json")), "\"log_every\": 1,"));
}

TEST_F(ProgramOutput, NohupKeepsTheRunGoing) {
  Program run(folder_.path(), two + "--steps 12", {.ignored = {SIGHUP}});
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(-run.pid(), SIGHUP);
  EXPECT_EQ(run.wait().code, 0);
  expect_steps(12);
}

// A worker that was suspended saves a checkpoint when the run is asked to stop.
TEST_F(ProgramOutput, ASuspendedWorkerStopsInOrder) {
  Program run(folder_.path(), on_vit + "-n 2 --data synthetic --batch 4 --out run --steps 100000");
  const pid_t worker = run.worker(0);
  ASSERT_TRUE(run.wait_for(in("run/metrics.jsonl"), "\"step\":2,"));
  kill(worker, SIGSTOP);
  ASSERT_TRUE(wait_until([&] { return state_of(worker) == 'T'; }));
  kill(run.pid(), SIGTERM);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 128 + SIGTERM) << end.errors;
  EXPECT_GE(load_checkpoint(in("run")).step, 2);
}

TEST_F(ProgramOutput, AFileSizeLimitIsAnError) {
  const Finished end =
      run_program(folder_.path(), on_vit + "--data synthetic --batch 4 --steps 2 --out run",
                  {.file_size = 1 << 20});
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(has(end.errors, "can't write run/.saving-step/weights.safetensors: File too large"));
}

}  // namespace
}  // namespace bv::test
