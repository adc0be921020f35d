#include "engine/files/run_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "tests/files.h"
#include "tests/messages.h"
#include "tests/temporary_folder.h"

namespace bv::test {
namespace {

std::string refusal(const std::string& folder) {
  return error_of([&] { const RunLock lock(folder); });
}

// Starts a child that holds the lock until it is killed.
pid_t start_owner(const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(folder);
    write_text(folder + "/ready", "x");
    pause();
  }
  while (contents(folder + "/ready").empty()) usleep(1000);
  return child;
}

TEST(RunLock, IsOneProcessesAtATimeAndEndsWithIt) {
  const TemporaryFolder run;
  const pid_t owner = start_owner(run.path());
  EXPECT_EQ(refusal(run.path()), run.path() + " is in use by process " + std::to_string(owner));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_EQ(refusal(run.path()), "no error");
  EXPECT_EQ(names_in(run.path()), std::set<std::string>{"ready"});
}

TEST(RunLock, NamesTheMachineIfItIsAnother) {
  const TemporaryFolder run;
  const RunLock lock(run.path());
  write_text(run / ".lock", "7 elsewhere");
  EXPECT_EQ(refusal(run.path()), run.path() + " is in use by process 7 on elsewhere");
  write_text(run / ".lock", "");
  EXPECT_EQ(refusal(run.path()), run.path() + " is in use by another process");
}

TEST(RunLock, IsAFileOfItsOwn) {
  const TemporaryFolder run;
  ASSERT_EQ(mkfifo((run / ".lock").c_str(), 0600), 0);
  EXPECT_EQ(refusal(run.path()), run / ".lock" + ": can't be made: not a regular file");
  EXPECT_EQ(names_in(run.path()), std::set<std::string>{".lock"});
}

}  // namespace
}  // namespace bv::test
