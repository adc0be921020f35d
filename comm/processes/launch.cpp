// Single-threaded on purpose: PR_SET_PDEATHSIG, which kills the workers with the launcher however
// it ends, fires when the forking *thread* ends.
#include "comm/processes/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/stop_signals.h"
#include "comm/local/rank_barrier.h"
#include "comm/processes/affinity.h"
#include "comm/processes/world.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds grace_period{2};  // from SIGTERM to SIGKILL after a failure
// How long a worker that was asked to stop may lack a heartbeat, and may be saving.
constexpr std::chrono::seconds max_silence{5}, max_saving{60};
constexpr std::chrono::seconds max_leaving{10};  // after the first worker has ended well

// Stop signals and SIGCHLD are blocked and fetched one by one.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (const int number : stop_signals()) sigaddset(&set_, number);
    hold_stop_signals();
    sigprocmask(SIG_BLOCK, &set_, &before_);
    // No SIGCHLD for stopped children; SIG_DFL, or exits would not be signalled.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    action.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, &child_before_);
  }
  HeldSignals(const HeldSignals&) = delete;
  ~HeldSignals() {
    sigaction(SIGCHLD, &child_before_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  // The next signal; si_signo is 0 if none comes before `end`.
  siginfo_t next(Clock::time_point end) const {
    siginfo_t info{};
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now());
      if (left.count() <= 0) return {};
      const timespec limit{static_cast<time_t>(left.count() / 1000000000),
                           static_cast<long>(left.count() % 1000000000)};
      if (sigtimedwait(&set_, &info, &limit) > 0) return info;
    }
  }

 private:
  sigset_t set_, before_;
  struct sigaction child_before_ {};
};

std::string name_of_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// The exit code of a worker that stopped cleanly on request, ours or someone else's.
bool is_stop_code(int code) {
  return std::ranges::any_of(stop_signals(), [&](int number) { return code == 128 + number; });
}

struct WorkerStart {
  int local_rank, local_size;
  const NodePlace& place;
  const std::string& program;
  const std::vector<std::string>& argv;
  int shared_fd;            // inherited by the worker
  const sigset_t& signals;  // the worker's mask
};

using Strings = std::vector<std::string>;

// "NAME=value" strings, as execve wants them.
Strings environment_of(const WorkerStart& start, int threads) {
  Strings environment;
  for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
  const auto set = [&environment](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const auto& entry) { return entry.starts_with(name + "="); });
    environment.push_back(name + "=" + value);
  };
  const NodePlace& place = start.place;
  set("RANK", std::to_string(place.node * start.local_size + start.local_rank));
  set("WORLD_SIZE", std::to_string(place.nodes * start.local_size));
  set("LOCAL_RANK", std::to_string(start.local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(start.local_size));
  set("GROUP_RANK", std::to_string(place.node));
  set("GROUP_WORLD_SIZE", std::to_string(place.nodes));
  if (place.nodes > 1) {
    set("MASTER_ADDR", place.master_addr);
    set("MASTER_PORT", std::to_string(place.master_port));
  }
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
  _exit(127);
}

pid_t start_worker(const WorkerStart& start) {
  const CoreShare share = share_of_cores(start.local_rank, start.local_size);
  const Strings environment = environment_of(start, share.cores);
  const std::vector<char*> argv = pointers(start.argv), variables = pointers(environment);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw RunError("can't start process " + std::to_string(start.local_rank) + " of " +
                   std::to_string(start.local_size) + ": " + std::strerror(errno));
  if (pid == 0) run_child(start, share, launcher, argv.data(), variables.data());
  return pid;
}

class Supervisor {
 public:
  Supervisor(int nproc, const NodePlace& place, const std::vector<std::string>& argv,
             const std::string& program)
      : place_(place),
        first_rank_(place.node * nproc),
        region_(SharedRegion::create(place.nodes * nproc)) {
    try {
      for (int i = 0; i < nproc; ++i)
        workers_.push_back(
            start_worker({i, nproc, place_, program, argv, region_.fd(), starting_mask_}));
    } catch (...) {
      end_at_once();
      throw;
    }
  }
  Supervisor(const Supervisor&) = delete;

  int run() {
    while (any_left()) {
      const auto look = (stopping_ || leaving_) ? std::chrono::seconds(1) : std::chrono::hours(1);
      const siginfo_t info = signals_.next(ending_ ? kill_at_ : Clock::now() + look);
      if (info.si_signo == SIGCHLD)
        reap(info.si_pid);
      else if (info.si_signo != 0)
        stop(info.si_signo);
      else
        look_at_workers();
      if (ending_ && Clock::now() >= kill_at_) signal_all(SIGKILL), kill_at_ += grace_period;
    }
    return verdict_;
  }

 private:
  bool any_left() const {
    return std::ranges::any_of(workers_, [](pid_t pid) { return pid > 0; });
  }
  void signal_all(int number) {
    for (pid_t pid : workers_)
      if (pid > 0) kill(pid, number);
  }

  // Reaps `first` before all others that have ended since the last call, whose SIGCHLDs are merged
  // into its own.
  void reap(pid_t first) {
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < workers_.size(); ++i) {
        const pid_t pid = workers_[i];
        int status;
        if (pid <= 0 || (round == 0 && pid != first) || waitpid(pid, &status, WNOHANG) != pid)
          continue;
        workers_[i] = 0;
        ended(static_cast<int>(i), status);
      }
  }

  void ended(int worker, int status) {
    if (ending_) return;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (WIFEXITED(status) && (code == 0 || is_stop_code(code))) {
      // The others may still be saving. One that they told to stop before it had the signal says
      // SIGTERM.
      if (code != 0) verdict_ = stopping_ ? 128 + stopping_ : code;
      if (!leaving_) leaving_ = Clock::now();
      return;
    }
    // A worker killed by our signal before its handler was installed is not reported.
    if (WIFEXITED(status) || WTERMSIG(status) != stopping_) say_end(worker, status);
    verdict_ = code;
    end_others();
  }

  int rank_of(int worker) const { return first_rank_ + worker; }
  // "rank 3", and on which of several machines.
  std::string name_of(int worker) const {
    std::string name = "rank " + std::to_string(rank_of(worker));
    if (place_.nodes == 1) return name;
    return name + " (node " + std::to_string(place_.node) + ", " + name_of_machine() + ")";
  }

  // A single process has printed itself what went wrong.
  void say_end(int worker, int status) const {
    const std::string who = name_of(worker);
    const bool said = region_.control().error_printed;
    const bool only = workers_.size() == 1 && place_.nodes == 1;
    if (WIFSIGNALED(status))
      print_error_line(who + " was killed by " + name_of_signal(WTERMSIG(status)) +
                       (WTERMSIG(status) == SIGKILL ? " (out of memory?)" : ""));
    else if (!said || (WEXITSTATUS(status) != 2 && !only))
      print_error_line(who + " ended with exit code " + std::to_string(WEXITSTATUS(status)));
  }

  void end_others() {
    ending_ = true;
    kill_at_ = Clock::now() + grace_period;
    region_.end_waiting();
    signal_all(SIGTERM);
  }

  // A signal from the user or the batch system: the first is passed on, a second ends the run.
  void stop(int number) {
    if (stopping_ == 0 && !ending_) {
      stopping_ = number;
      stopped_at_ = Clock::now();
      signal_all(number);
      signal_all(SIGCONT);  // one that was stopped by SIGSTOP has to save, too
      return;
    }
    if (!ending_) verdict_ = 128 + number;
    ending_ = true;
    kill_at_ = Clock::now();
  }

  void look_at_workers() {
    if (stopping_ && !ending_) look_at_stopping();
    if (leaving_ && !ending_) look_at_leaving();
  }

  // Ends a run that doesn't react to being stopped.
  void look_at_stopping() {
    const auto waited = Clock::now() - stopped_at_;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const RankStatus& status = region_.rank(rank_of(int(i)));
      if (workers_[i] == 0 || status.state != RankState::here) continue;
      const bool silent = waited > max_silence && !has_heartbeat(status);
      if (!silent && (waited < max_saving || status.busy == Busy::no)) continue;
      print_error_line(name_of(int(i)) +
                       (silent ? " does not react to " : " is still saving 60 s after ") +
                       name_of_signal(stopping_) + "; the run is ended");
      verdict_ = 128 + stopping_;
      ending_ = true;
      kill_at_ = Clock::now();
      return;
    }
  }

  // Kills a worker that is stopped while it ends: the others wait only for its end.
  void look_at_leaving() {
    if (Clock::now() - *leaving_ < max_leaving) return;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i] == 0 || has_heartbeat(region_.rank(rank_of(int(i))))) continue;
      print_error_line(name_of(int(i)) + " has not ended " + std::to_string(max_leaving.count()) +
                       " s after the others did, and shows no sign of life; it is killed");
      verdict_ = 1;
      ending_ = true;
      kill_at_ = Clock::now();
      return;
    }
  }

  void end_at_once() {
    signal_all(SIGKILL);
    for (pid_t pid : workers_) waitpid(pid, nullptr, 0);
  }

  HeldSignals signals_;
  const sigset_t starting_mask_ = starting_signal_mask();
  const NodePlace& place_;
  int first_rank_;
  SharedRegion region_;         // with a place for each rank of the run
  std::vector<pid_t> workers_;  // by local rank; 0 once it has ended
  int verdict_ = 0;
  int stopping_ = 0;  // the signal passed on, and when
  Clock::time_point stopped_at_;
  std::optional<Clock::time_point> leaving_;  // when the first worker ended well
  bool ending_ = false;
  Clock::time_point kill_at_;
};

}  // namespace

int run_launcher(int nproc, const std::vector<std::string>& argv, const NodePlace& place,
                 const std::string& program) {
  if (nproc < 1)
    throw UserError("-n " + std::to_string(nproc) + ": at least one process is needed");
  requested_threads(true);  // refused here, before each worker does
  if (const int cores = usable_cores(); nproc > cores)
    print_error_line("warning: " + std::to_string(nproc) + " processes share " +
                     std::to_string(cores) + (cores == 1 ? " core" : " cores") +
                     " and wait for each other; try -n " + std::to_string(cores));
  try {
    return Supervisor(nproc, place, argv, program).run();
  } catch (const std::system_error& error) {
    throw RunError(error.what());
  }
}

}  // namespace bv
