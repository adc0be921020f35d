#include "engine/processes/worker_start.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/processes/world.h"

namespace bv {
namespace {

using Strings = std::vector<std::string>;

// "NAME=value" strings, as execve wants them.
Strings environment_of(const WorkerStart& start, int threads) {
  Strings environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  const auto set = [&environment](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const auto& entry) { return entry.starts_with(name + "="); });
    environment.push_back(name + "=" + value);
  };
  const std::string rank = std::to_string(start.rank), size = std::to_string(start.size);
  set("RANK", rank);
  set("WORLD_SIZE", size);
  set("LOCAL_RANK", rank);
  set("LOCAL_WORLD_SIZE", size);
  set(shared_fd_variable, std::to_string(start.shared_fd));
  // Waiting threads sleep: as fast as spinning on idle cores, several times faster on busy ones.
  if (!std::getenv("OMP_WAIT_POLICY")) set("OMP_WAIT_POLICY", "passive");
  if (!std::getenv("OMP_NUM_THREADS")) set("OMP_NUM_THREADS", std::to_string(threads));
  return environment;
}

std::vector<char*> pointers(const Strings& strings) {
  std::vector<char*> list;
  for (const std::string& s : strings) list.push_back(const_cast<char*>(s.c_str()));
  list.push_back(nullptr);
  return list;
}

// What the child needs, prepared before fork: between fork and exec it may allocate nothing.
struct Child {
  const char* program;
  char* const* argv;
  char* const* environment;
  const CoreShare& share;
  int shared_fd;
  const sigset_t& signals;
  pid_t launcher;
};

[[noreturn]] void run_child(const Child& child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != child.launcher) _exit(1);  // the launcher ended before the line above
  pin_this_process(child.share);              // before the program's libraries count their cores
  fcntl(child.shared_fd, F_SETFD, 0);
  sigprocmask(SIG_SETMASK, &child.signals, nullptr);
  execve(child.program, child.argv, child.environment);
  const char* reason = strerrordesc_np(errno);
  for (const char* part : {"can't start ", child.program, ": ", reason ? reason : "?", "\n"})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(127);
}

}  // namespace

pid_t start_worker(const WorkerStart& start) {
  const CoreShare share = share_of_cores(start.rank, start.size);
  const Strings environment = environment_of(start, share.cores);
  const std::vector<char*> argv = pointers(start.argv), variables = pointers(environment);
  const Child child{start.program.c_str(), argv.data(),   variables.data(), share,
                    start.shared_fd,       start.signals, getpid()};
  const pid_t pid = fork();
  if (pid < 0)
    throw RunError("can't start process " + std::to_string(start.rank) + " of " +
                   std::to_string(start.size) + ": " + std::strerror(errno));
  if (pid == 0) run_child(child);
  return pid;
}

}  // namespace bv
