#include "comm/processes/start_worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "comm/processes/affinity.h"
#include "comm/processes/world.h"

namespace bv {
namespace {

using Strings = std::vector<std::string>;

// "NAME=value" strings, as execve expects.
Strings environment_of(const WorkerStart& start, int threads) {
  Strings environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  const auto unset = [&environment](const std::string& name) {
    std::erase_if(environment, [&](const auto& entry) { return entry.starts_with(name + "="); });
  };
  const auto set = [&](const std::string& name, const std::string& value) {
    unset(name);
    environment.push_back(name + "=" + value);
  };
  const NodePlace& place = start.launch.place;
  const int local_size = start.launch.nproc;
  set("RANK", std::to_string(place.node * local_size + start.local_rank));
  set("WORLD_SIZE", std::to_string(place.nodes * local_size));
  set("LOCAL_RANK", std::to_string(start.local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(local_size));
  set("GROUP_RANK", std::to_string(place.node));
  set("GROUP_WORLD_SIZE", std::to_string(place.nodes));
  if (place.nodes > 1) {
    set("MASTER_ADDR", place.master_addr);
    set("MASTER_PORT", std::to_string(place.master_port));
  }
  set(shared_fd_variable, std::to_string(start.shared_fd));
  unset(device_variable);
  const std::vector<int>& devices = start.launch.devices;
  if (!devices.empty()) set(device_variable, std::to_string(devices[size_t(start.local_rank)]));
  unset(restart_variable);
  if (start.restart.number > 0) set(restart_variable, to_json(start.restart));
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

// Runs in the child, where nothing may be allocated between fork and exec.
[[noreturn]] void run_child(const WorkerStart& start, const CoreShare& share, pid_t launcher,
                            char* const* argv, char* const* environment) {
  const char* const program = start.program.c_str();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher ended before the line above
  pin_this_process(share);              // before the program's libraries count their cores
  fcntl(start.shared_fd, F_SETFD, 0);
  sigprocmask(SIG_SETMASK, &start.signals, nullptr);
  execve(program, argv, environment);
  const char* reason = strerrordesc_np(errno);
  for (const char* part : {"can't start ", program, ": ", reason ? reason : "?", "\n"})
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  _exit(not_started);
}

}  // namespace

pid_t start_worker(const WorkerStart& start) {
  const CoreShare share = share_of_cores(start.local_rank, start.launch.nproc);
  const Strings environment = environment_of(start, share.cores);
  const std::vector<char*> argv = pointers(start.launch.argv), variables = pointers(environment);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw RunError("can't start process " + std::to_string(start.local_rank) + " of " +
                   std::to_string(start.launch.nproc) + ": " + std::strerror(errno));
  if (pid == 0) run_child(start, share, launcher, argv.data(), variables.data());
  return pid;
}

}  // namespace bv
