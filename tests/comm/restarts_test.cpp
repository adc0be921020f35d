// The launcher starts its workers again after they have failed.
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "comm/processes/launch.h"
#include "comm/processes/restart.h"
#include "tests/comm/processes.h"
#include "tests/messages.h"

namespace bv::test {
namespace {

const std::string killed = "rank 1 was killed by SIGKILL (out of memory?)\n";

// A launcher of two workers, of which rank 1 ends as specified by `ends` in launch_workers.cpp.
Child launcher(const std::string& words, int max_restarts) {
  return Child([=] { return launch_workers(2, words, max_restarts); });
}

void expect_end(const std::string& words, int max_restarts, int code, const std::string& errors) {
  SCOPED_TRACE(words);
  Child run = launcher(words, max_restarts);
  const Ending ending = run.wait();
  EXPECT_EQ(ending.code, code);
  std::string lines = without_warning(ending.errors);
  for (size_t up; (up = lines.find("up 0\n")) != lines.npos;) lines.erase(up, 5);
  EXPECT_EQ(lines, errors);
  EXPECT_FALSE(run.anyone_left());
}

TEST(Restarts, SayWhyAndWhere) {
  expect_end("ends 9 0 7", 3, 0,
             "restart 1 of 3 in 1 s; the run ended before its first step: " + killed +
                 "restart 2 of 3 in 1 s; the run ended in step 7: " + killed);
  expect_end("ends -3 5", 1, 0,
             "restart 1 of 1 in 1 s; the run ended in step 5: rank 1 ended with exit code 3\n");
}

TEST(Restarts, PauseLongerWhileTheRunComesNoFurther) {
  expect_end("ends 9 0 0 4", 3, 0,
             "restart 1 of 3 in 1 s; the run ended before its first step: " + killed +
                 "restart 2 of 3 in 2 s; the run ended before its first step: " + killed +
                 "restart 3 of 3 in 1 s; the run ended in step 4: " + killed);
}

TEST(Restarts, EndAsWithoutThemOnceUsedUp) {
  expect_end("ends 9 1 2", 1, 128 + SIGKILL,
             "restart 1 of 1 in 1 s; the run ended in step 1: " + killed + killed);
}

TEST(Restarts, EndARunThatDiesTwiceInTheSameStep) {
  const std::string again =
      "rank 1: the run has ended in step 4 for the second time, so it is not started again\n";
  expect_end("ends 9 4 4", 9, 128 + SIGKILL,
             "restart 1 of 9 in 1 s; the run ended in step 4: " + killed + killed + again);
  // A death between the two, before the first step, changes nothing.
  expect_end("ends -3 4 0 4", 9, 3,
             "restart 1 of 9 in 1 s; the run ended in step 4: rank 1 ended with exit code 3\n"
             "restart 2 of 9 in 2 s; the run ended before its first step: rank 1 ended with exit "
             "code 3\n"
             "rank 1 ended with exit code 3\n" +
                 again);
}

TEST(Restarts, DontFollowAMistakeOfTheUser) {
  expect_end("fail 2", 3, 2, "the folder is missing\n");
  expect_end("ends -2 5", 3, 2, "rank 1 ended with exit code 2\n");
  Child run([] { return run_launcher({.argv = {"x"}, .max_restarts = 3}, "/nowhere/program"); });
  const Ending ending = run.wait();
  EXPECT_EQ(ending.code, 127);
  EXPECT_FALSE(has(ending.errors, "restart")) << ending.errors;
}

TEST(Restarts, DontFollowARequestToStop) {
  expect_end("ends 15 0", 3, 128 + SIGTERM, "rank 1 was killed by SIGTERM\n");
  for (const int signal : {SIGTERM, SIGINT}) {
    Child run = launcher("train 3600000", 3);
    run.errors_until("up 0");
    run.errors_until("up 1");
    kill(run.pid(), signal);
    const Ending ending = run.wait();
    EXPECT_EQ(ending.code, 128 + signal);
    EXPECT_FALSE(has(ending.errors, "restart")) << ending.errors;
    EXPECT_FALSE(run.anyone_left());
  }
}

TEST(Restarts, EndAtASignalDuringThePause) {
  Child run = launcher("ends 9 0 0 0", 3);
  run.errors_until("restart 2 of 3 in 2 s");
  kill(run.pid(), SIGTERM);
  const Ending ending = run.wait();
  EXPECT_EQ(ending.code, 128 + SIGTERM);
  EXPECT_FALSE(has(ending.errors, "restart 3")) << ending.errors;
  EXPECT_FALSE(run.anyone_left());
}

// A launcher of four workers with these broken devices. A number of processes fits if `step`
// divides it.
Ending end_of_broken(const std::string& devices, int min_nproc, int max_restarts, int step = 1) {
  Child run([=] {
    setenv(worker_variable, ("broken " + devices).c_str(), 1);
    return run_launcher({.nproc = 4,
                         .argv = {"tests"},
                         .max_restarts = max_restarts,
                         .min_nproc = min_nproc,
                         .fits = [=](int nproc, const std::string&) { return nproc % step == 0; }});
  });
  Ending ending = run.wait();
  EXPECT_FALSE(run.anyone_left());
  ending.errors = without_warning(ending.errors);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string up = "up " + std::to_string(rank) + "\n";
    for (size_t at; (at = ending.errors.find(up)) != std::string::npos;)
      ending.errors.erase(at, up.size());
  }
  return ending;
}

TEST(Restarts, LeaveOutAProcessThatFailsTwiceAtItsStart) {
  const auto says = [](int number, int most, int seconds, int rank) {
    return "restart " + std::to_string(number) + " of " + std::to_string(most) + " in " +
           std::to_string(seconds) + " s; the run ended before its first step: rank " +
           std::to_string(rank) + " ended with exit code 3\n";
  };
  const Ending three = end_of_broken("1", 2, 5);
  EXPECT_EQ(three.code, 0);
  EXPECT_TRUE(three.errors.starts_with(
      says(1, 5, 1, 1) + says(2, 5, 2, 1) +
      "restart 2 of 5: 3 processes, 4 before; rank 1 is left out: it failed twice before "
      "its first step\n"))
      << three.errors;
  for (const std::string device : {"0", "2", "3"})
    EXPECT_TRUE(has(three.errors, "device " + device + ", 4 before\n")) << three.errors;
  // Three processes don't fit this run, so it continues with two.
  const Ending two = end_of_broken("1", 1, 5, 2);
  EXPECT_EQ(two.code, 0);
  for (const std::string device : {"0", "2"})
    EXPECT_TRUE(has(two.errors, "device " + device + ", 4 before\n")) << two.errors;
  EXPECT_FALSE(has(two.errors, "device 3")) << two.errors;
}

TEST(Restarts, LeaveOutNoMoreProcessesThanAllowed) {
  for (const auto& [min_nproc, step] : {std::pair{0, 1}, {4, 1}, {3, 2}}) {
    const Ending ending = end_of_broken("1", min_nproc, 2, step);
    EXPECT_EQ(ending.code, 3);
    EXPECT_FALSE(has(ending.errors, "4 before")) << ending.errors;
    EXPECT_TRUE(has(ending.errors, "restart 2 of 2")) << ending.errors;
  }
}

TEST(Restarts, TravelInTheEnvironment) {
  unsetenv(restart_variable);
  EXPECT_FALSE(restart_from_environment());
  const Restart sent{.number = 2,
                     .most = 3,
                     .after = {.rank = 1, .step = 4, .cause = "\"step\": \xc3\xa4, a=b"},
                     .folder = "runs/a b",
                     .processes = 4,
                     .unlogged = {{.number = 1, .most = 3, .after = {.cause = "it"}}}};
  setenv(restart_variable, to_json(sent).c_str(), 1);
  const auto got = restart_from_environment();
  ASSERT_TRUE(got);
  EXPECT_EQ(to_json(*got), to_json(sent));
  EXPECT_EQ(got->after.cause, sent.after.cause);
  EXPECT_EQ(got->folder, sent.folder);
  EXPECT_EQ(got->processes, 4);
  ASSERT_EQ(got->unlogged.size(), 1u);
  EXPECT_EQ(to_json(got->unlogged[0]), to_json(sent.unlogged[0]));
  for (const char* wrong : {"2", "{}", "{\"restart\":0}"}) {
    setenv(restart_variable, wrong, 1);
    EXPECT_TRUE(has(error_of([] { restart_from_environment(); }), restart_variable)) << wrong;
  }
  unsetenv(restart_variable);
}

}  // namespace
}  // namespace bv::test
