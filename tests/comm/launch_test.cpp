// The launcher and its workers as real processes, and how they end.
#include "comm/processes/launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/stop_signals.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

// A timeout in milliseconds that no test reaches.
constexpr int patient = 3600000;

Child launcher(int nproc, const std::string& words) {
  return Child([=] { return launch_workers(nproc, words); });
}

// A run in which a rank may send itself a signal.
std::string train(int timeout_ms, int rank = -1, int step = 0, int signal = 0) {
  return "train " + std::to_string(timeout_ms) + " " + std::to_string(rank) + " " +
         std::to_string(step) + " " + std::to_string(signal);
}

// Waits until both workers have reported that they are up.
void wait_until_up(Child& run) {
  run.errors_until("up 0");
  run.errors_until("up 1");
}

// Waits for the launcher, which must end with this code and leave no process behind.
Ending end_of(Child& run, int code) {
  const Ending ending = run.wait();
  EXPECT_EQ(ending.code, code) << ending.errors;
  EXPECT_FALSE(run.anyone_left());
  return ending;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

TEST(Launch, PassesOnExitCodesAndPrintsErrorsOnce) {
  struct Case {
    int nproc;
    const char* words;
    int code;
    const char* errors;
  };
  for (const auto& [nproc, words, code, errors] :
       {Case{3, "exit 0 0 0", 0, ""}, Case{2, "exit 0 7", 7, "rank 1 ended with exit code 7\n"},
        Case{3, "fail 2", 2, "the folder is missing\n"},   // found by every rank
        Case{2, "half", 2, "a.jpg is not an image\n"}}) {  // found by one rank
    Child run = launcher(nproc, words);
    EXPECT_EQ(without_warning(end_of(run, code).errors), errors) << words;
  }
}

TEST(Launch, ReportsAMissingProgram) {
  Child run([] { return run_launcher({.argv = {"x"}}, "/nowhere/program"); });
  const Ending ending = end_of(run, 127);
  EXPECT_TRUE(has(ending.errors, "can't start /nowhere/program: No such file"));
}

TEST(Launch, NamesAWorkerThatWasKilled) {
  for (const int step : {0, 1, 40}) {
    Child run = launcher(2, train(patient, 1, step, SIGKILL));
    const Ending ending = end_of(run, 128 + SIGKILL);
    EXPECT_EQ(count(ending.errors, "rank 1 was killed by SIGKILL (out of memory?)\n"), 1u)
        << ending.errors;
    EXPECT_EQ(count(ending.errors, "rank 0"), 0u) << ending.errors;
  }
}

TEST(Launch, EndsWorkersThatDontHeedSigterm) {
  Child run = launcher(2, "stubborn");
  const Ending ending = end_of(run, 7);
  EXPECT_EQ(count(ending.errors, "rank 1 ended with exit code 7\n"), 1u) << ending.errors;
}

TEST(Launch, WorkersDieWithTheLauncher) {
  Child run = launcher(2, "sleep");
  wait_until_up(run);
  kill(run.pid(), SIGKILL);
  end_of(run, 128 + SIGKILL);
}

// The workers also die if the launcher is killed while it starts them.
TEST(Launch, WorkersDieWithALauncherKilledEarly) {
  for (const int delay : {0, 500, 1000, 2000, 4000}) {
    Child run = launcher(3, "sleep");
    usleep(delay);
    kill(run.pid(), SIGKILL);
    end_of(run, 128 + SIGKILL);
  }
}

TEST(Launch, SigtermToTheLauncherStopsInOrder) {
  Child run = launcher(2, train(patient) + " slow-save");
  wait_until_up(run);
  kill(run.pid(), SIGTERM);
  const Ending ending = end_of(run, 128 + SIGTERM);
  EXPECT_EQ(count(ending.errors, "saved 0\n"), 1u) << ending.errors;
  EXPECT_EQ(count(ending.errors, "saved 1\n"), 1u) << ending.errors;
  EXPECT_EQ(count(ending.errors, "rank"), 0u) << ending.errors;
}

TEST(Launch, CtrlCToTheWholeGroupStopsInOrder) {
  Child run = launcher(2, train(patient));
  wait_until_up(run);
  kill(-run.pid(), SIGINT);
  const Ending ending = end_of(run, 128 + SIGINT);
  EXPECT_EQ(count(ending.errors, "saved"), 2u) << ending.errors;
  EXPECT_EQ(count(ending.errors, "rank"), 0u) << ending.errors;
}

TEST(Launch, EndsWithTheSignalThatItPassedOn) {
  Child run = launcher(2, "told");
  wait_until_up(run);
  kill(run.pid(), SIGINT);
  end_of(run, 128 + SIGINT);
}

TEST(Launch, ARepeatedSignalIsOneRequestUnlessItComesLater) {
  Child worker([] {
    hold_stop_signals();
    catch_stop_signals();
    kill(getpid(), SIGTERM);
    while (stop_signal() == 0) usleep(1000);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT);
    if (stop_signal() != SIGTERM) return 1;
    usleep(1100000);
    kill(getpid(), SIGINT);
    pause();
    return 2;
  });
  EXPECT_EQ(worker.wait().code, 128 + SIGINT);
}

TEST(Launch, WorkersThatCantStopInOrderYetJustEnd) {
  Child run = launcher(2, "sleep");
  wait_until_up(run);
  kill(run.pid(), SIGTERM);
  const Ending ending = end_of(run, 128 + SIGTERM);
  EXPECT_EQ(count(ending.errors, "rank"), 0u) << ending.errors;
}

TEST(Launch, NamesTheFirstOfSeveralDeaths) {
  Child run = launcher(2, "in-turn");
  wait_until_up(run);
  const std::vector<pid_t> workers = children_of(run.pid());
  kill(run.pid(), SIGSTOP);  // so that it sees both deaths at once
  const auto ended = [](pid_t worker) { return state_of(worker) == 'Z'; };
  EXPECT_TRUE(wait_until([&] { return std::ranges::all_of(workers, ended); }));
  kill(run.pid(), SIGCONT);
  const Ending ending = end_of(run, 7);
  EXPECT_EQ(count(ending.errors, "rank 1 ended with exit code 7\n"), 1u) << ending.errors;
  EXPECT_EQ(count(ending.errors, "rank 0"), 0u) << ending.errors;
}

TEST(Launch, ASecondSignalEndsAtOnce) {
  Child run = launcher(2, train(patient) + " endless-save");
  wait_until_up(run);
  kill(run.pid(), SIGTERM);
  run.errors_until("saved 1");
  kill(run.pid(), SIGTERM);
  const Ending ending = end_of(run, 128 + SIGTERM);
  EXPECT_EQ(count(ending.errors, "saved 0"), 0u) << ending.errors;
}

TEST(Launch, EndsARunWhoseWorkerDoesntReactToASignal) {
  Child run = launcher(2, "stopping");
  wait_until_up(run);
  kill(run.pid(), SIGTERM);
  const Ending ending = end_of(run, 128 + SIGTERM);
  EXPECT_EQ(count(ending.errors, "rank 1 does not react to SIGTERM; ending the run\n"), 1u)
      << ending.errors;
}

// The worker's peers have finished, so only the launcher can notice.
TEST(Launch, EndsARunWhoseWorkerIsStoppedOnItsLastWay) {
  Child launcher([] { return launch_workers(2, "last_way 1"); });
  const Ending ending = launcher.wait();
  EXPECT_EQ(ending.code, 1);
  EXPECT_EQ(without_warning(ending.errors),
            "rank 1 has not ended 10 s after the others did, and shows no sign of life; "
            "killing it\n");
}

TEST(Launch, NoticesAStuckWorker) {
  Child run = launcher(2, train(1000, 1, 5, SIGSTOP));
  const Ending ending = end_of(run, 1);
  EXPECT_EQ(count(ending.errors, "rank 0: rank 1 has not answered for 1 s (--timeout)\n"), 1u)
      << ending.errors;
}

TEST(Launch, SharesOutCores) {
  Child run = launcher(1, "affinity");
  const Ending ending = end_of(run, 0);
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  EXPECT_TRUE(has(ending.errors, "cpus " + std::to_string(CPU_COUNT(&cpus)) + " "));
  if (CPU_COUNT(&cpus) != 2) return;
  Child two = launcher(2, "affinity");
  EXPECT_EQ(count(two.wait().errors, "cpus 1 threads 1 omp 1\n"), 2u);
}

TEST(Launch, RefusesNoProcesses) {
  EXPECT_THROW(run_launcher({.nproc = 0, .argv = {"x"}}), UserError);
}

// Runs two workers under another launcher, if it is installed.
void expect_sum_under(const std::string& tool, const std::string& options) {
  if (std::system(("command -v " + tool + " > /dev/null").c_str()) != 0)
    GTEST_SKIP() << tool << " is not installed";
  const std::string command = tool + " " + options + " " + own_path();
  Child run([&] {
    setenv(worker_variable, "sum", 1);
    return std::system(command.c_str()) == 0 ? 0 : 1;
  });
  const Ending ending = run.wait();
  EXPECT_EQ(ending.code, 0) << ending.errors;
  EXPECT_EQ(count(ending.errors, "sum 3 of 2"), 2u) << ending.errors;
}

// Open MPI's mpirun, which needs these variables, or MPICH's, which ignores them.
TEST(Launch, WorksUnderMpirun) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  expect_sum_under("mpirun", "-n 2");
}

// MPICH's launcher, with and without a shell between it and the rank.
TEST(Launch, WorksUnderHydra) {
  expect_sum_under("mpiexec.hydra", "-n 2");
  if (!testing::Test::IsSkipped())
    expect_sum_under("mpiexec.hydra", "-n 2 sh -c '\"$0\"; exit $?'");
}

TEST(Launch, WorksUnderTorchrun) {
  expect_sum_under("torchrun", "--standalone --nproc-per-node 2 --no-python");
}

}  // namespace
}  // namespace bv::test
