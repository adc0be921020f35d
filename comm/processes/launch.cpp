// Single-threaded on purpose: PR_SET_PDEATHSIG, which kills the workers with the launcher however
// it ends, fires when the forking *thread* ends.
#include "comm/processes/launch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stop_signals.h"
#include "comm/local/rank_barrier.h"
#include "comm/processes/affinity.h"
#include "comm/processes/restart.h"
#include "comm/processes/start_worker.h"
#include "comm/processes/world.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds grace_period{2};  // from SIGTERM to SIGKILL after a failure
// How long a worker that was asked to stop may lack a heartbeat, and may be saving.
constexpr std::chrono::seconds max_silence{5}, max_saving{60};
constexpr std::chrono::seconds max_leaving{10};  // after the first worker has ended well
constexpr std::chrono::seconds max_pause{30};    // before a restart; the first is a second
constexpr int user_error = 2;                    // an exit code

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

template <size_t N>
std::string text_of(const std::array<char, N>& padded) {
  return {padded.data(), strnlen(padded.data(), N)};
}

std::string name_of_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

// The exit code of a worker that stopped cleanly on request, ours or someone else's.
bool is_stop_code(int code) {
  return std::ranges::any_of(stop_signals(), [&](int number) { return code == 128 + number; });
}

// The processes from one start to their end.
class Supervisor {
 public:
  Supervisor(const Launch& launch, const std::string& program, const Restart& restart,
             const HeldSignals& signals)
      : signals_(signals),
        place_(launch.place),
        timeout_(launch.timeout),
        may_restart_(restart.number < restart.most),
        first_rank_(place_.node * launch.nproc),
        region_(SharedRegion::create(place_.nodes * launch.nproc)) {
    try {
      for (int i = 0; i < launch.nproc; ++i)
        workers_.push_back(start_worker({i, launch.nproc, place_, program, launch.argv, restart,
                                         region_.fd(), starting_mask_}));
    } catch (...) {
      end_at_once();
      throw;
    }
  }
  Supervisor(const Supervisor&) = delete;

  // Returns the exit code.
  int run() {
    while (any_left()) {
      const bool looks = stopping_ || leaving_ || watches_alone();
      const auto look = looks ? std::chrono::seconds(1) : std::chrono::hours(1);
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
  // Why the run ended, if it may be started again.
  const std::optional<Failure>& failure() const { return failure_; }
  // The line that the first worker to fail has printed, or "".
  std::string error() const { return text_of(region_.control().error); }
  // The line about this end that is still to be printed, or "".
  const std::string& unsaid() const { return unsaid_; }
  // The furthest step of a rank of this machine.
  int64_t step() const {
    int64_t most = 0;
    for (size_t i = 0; i < workers_.size(); ++i)
      most = std::max<int64_t>(most, region_.rank(rank_of(int(i))).step);
    return most;
  }
  std::string folder() const { return text_of(region_.control().folder); }

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
    // Others may be asked to stop while this one fails, or it may have been killed by a request to
    // stop, before it had a handler: neither is to be restarted.
    const bool asked = stopping_ != 0 || is_stop_code(verdict_) || is_stop_code(code);
    const bool mistake = code == user_error || code == not_started;
    // A worker killed by our signal before its handler was installed is not reported.
    if (WIFEXITED(status) || WTERMSIG(status) != stopping_)
      say_end(worker, status, asked || mistake);
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

  void say_end(int worker, int status, bool final) {
    const std::string who = name_of(worker);
    const bool said = region_.control().error_printed;
    // A single process has printed itself what went wrong.
    const bool only = workers_.size() == 1 && place_.nodes == 1;
    const std::string line =
        WIFSIGNALED(status) ? who + " was killed by " + name_of_signal(WTERMSIG(status)) +
                                  (WTERMSIG(status) == SIGKILL ? " (out of memory?)" : "")
                            : who + " ended with exit code " + std::to_string(WEXITSTATUS(status));
    const bool known = WIFEXITED(status) && said;
    const bool needed = !known || (WEXITSTATUS(status) != user_error && !only);
    if (known)  // perhaps by a peer of one that hangs
      fails(stopped_worker().value_or(worker), text_of(region_.control().error), needed ? line : "",
            final);
    else
      fails(worker, line, line, final);
  }

  // line: to print, at once unless a restart's line will have the cause.
  void fails(int worker, const std::string& cause, const std::string& line, bool final) {
    if (final || !may_restart_) {
      if (!line.empty()) print_error_line(line);
      return;
    }
    const int rank = rank_of(worker);
    failure_ = Failure{
        .rank = rank, .step = region_.rank(rank).step, .cause = cause, .seen = cause == line};
    unsaid_ = line;
  }

  // The worker that its peers gave up, if its whole process hangs.
  std::optional<int> stopped_worker() const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const RankStatus& status = region_.rank(rank_of(int(i)));
      if (workers_[i] > 0 && status.state == RankState::here && !has_heartbeat(status))
        return int(i);
    }
    return std::nullopt;
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
    if (watches_alone() && !ending_) look_at_all();
  }

  // If all processes of a machine hang, none of them notices.
  bool watches_alone() const { return may_restart_ && !stopping_ && !leaving_; }
  bool all_hang() const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const RankStatus& status = region_.rank(rank_of(int(i)));
      if (status.state != RankState::here || has_heartbeat(status)) return false;
    }
    return true;
  }
  // Called once a second; a machine that was suspended has not waited.
  void look_at_all() {
    silent_seconds_ = all_hang() ? silent_seconds_ + 1 : 0;
    if (silent_seconds_ < timeout_) return;
    char text[64];
    std::snprintf(text, sizeof text, " has given no sign of life for %g s (--timeout)", timeout_);
    fails(0, name_of(0) + text, name_of(0) + text, false);
    verdict_ = 1;
    ending_ = true;
    kill_at_ = Clock::now();
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
      const std::string line = name_of(int(i)) + " has not ended " +
                               std::to_string(max_leaving.count()) +
                               " s after the others did, and shows no sign of life; it is killed";
      fails(int(i), line, line, is_stop_code(verdict_));
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

  const HeldSignals& signals_;
  const sigset_t starting_mask_ = starting_signal_mask();
  const NodePlace& place_;
  double timeout_;
  bool may_restart_;
  int first_rank_;
  SharedRegion region_;         // with a place for each rank of the run
  std::vector<pid_t> workers_;  // by local rank; 0 once it has ended
  int verdict_ = 0;
  int stopping_ = 0;  // the signal passed on, and when
  Clock::time_point stopped_at_;
  std::optional<Clock::time_point> leaving_;  // when the first worker ended well
  bool ending_ = false;
  Clock::time_point kill_at_;
  int silent_seconds_ = 0;  // of all processes
  std::optional<Failure> failure_;
  std::string unsaid_;
};

// Starts the processes, and again after each end that a restart may help.
class Restarts {
 public:
  Restarts(const Launch& launch, const std::string& program)
      : launch_(launch), program_(program), next_{.most = launch.max_restarts} {}

  int run() {
    int code = 1;
    while (true) {
      if (launch_.meet) {
        if (const std::optional<int> ends = agree()) return *ends;
        if (died_there_before()) return code;
      }
      Supervisor attempt(launch_, program_, next_, signals_);
      code = attempt.run();
      if (!attempt.failure()) {
        if (!launch_.meet || is_stop_code(code)) return code;
        next_.ends = code;
        if (code != 0) next_.after = {.cause = attempt.error()};
        continue;
      }
      if (next_.after.step > 0) next_.step_before = next_.after.step;
      next_.after = *attempt.failure();
      if (!launch_.meet && died_there_before(attempt.unsaid())) return code;
      if (const int signal = pause(attempt)) return 128 + signal;
      if (!attempt.folder().empty()) next_.folder = attempt.folder();
      ++next_.number;
    }
  }

 private:
  // With the launchers of the other nodes, on the next start or on the exit code.
  std::optional<int> agree() {
    const std::optional<int> own = next_.ends;
    try {
      next_ = launch_.meet(launch_, next_);
    } catch (const std::exception&) {
      if (own.value_or(0) != 0) return own;  // its reason has been printed
      throw;
    }
    if (!next_.ends || own.value_or(0) != 0) return own.value_or(0) != 0 ? own : std::nullopt;
    if (!next_.after.cause.empty() && *next_.ends != 0) print_error_line(next_.after.cause);
    return next_.ends;
  }

  // Prints so. An end before an attempt's first step says nothing about a step.
  bool died_there_before(const std::string& unsaid = "") const {
    const Failure& failure = next_.after;
    if (failure.step == 0 || failure.step != next_.step_before) return false;
    if (!unsaid.empty()) print_error_line(unsaid);
    print_error_line("rank " + std::to_string(failure.rank) + ": the run has ended in step " +
                     std::to_string(failure.step) +
                     " for the second time, so it is not started again");
    return true;
  }

  // Says why the run is started again, and waits. Returns a stop signal that came before, or 0.
  int pause(const Supervisor& attempt) {
    const Failure& failure = next_.after;
    fruitless_ = attempt.step() > furthest_ ? 0 : fruitless_ + 1;
    furthest_ = std::max(furthest_, attempt.step());
    const auto seconds = std::min(max_pause, std::chrono::seconds(1LL << std::min(fruitless_, 10)));
    print_error_line("restart " + std::to_string(next_.number + 1) + " of " +
                     std::to_string(next_.most) + " in " + std::to_string(seconds.count()) +
                     " s; the run ended " +
                     (failure.step > 0 ? "in step " + std::to_string(failure.step)
                                       : std::string("before its first step")) +
                     ": " + failure.cause);
    const auto end = Clock::now() + seconds;
    while (Clock::now() < end)
      if (const int signal = signals_.next(end).si_signo; signal != 0 && signal != SIGCHLD)
        return signal;
    return 0;
  }

  const Launch& launch_;
  const std::string& program_;
  const HeldSignals signals_;
  Restart next_;
  int64_t furthest_ = 0;  // step that any attempt has come to
  int fruitless_ = -1;    // restarts in a row that came no further
};

}  // namespace

int run_launcher(const Launch& launch, const std::string& program) {
  const int nproc = launch.nproc;
  if (nproc < 1)
    throw UserError("-n " + std::to_string(nproc) + ": at least one process is needed");
  requested_threads(true);  // refused here, before each worker does
  if (const int cores = usable_cores(); nproc > cores)
    print_error_line("warning: " + std::to_string(nproc) + " processes share " +
                     std::to_string(cores) + (cores == 1 ? " core" : " cores") +
                     " and wait for each other; try -n " + std::to_string(cores));
  try {
    return Restarts(launch, program).run();
  } catch (const std::system_error& error) {
    throw RunError(error.what());
  }
}

}  // namespace bv
