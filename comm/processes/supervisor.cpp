#include "comm/processes/supervisor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "comm/local/rank_barrier.h"
#include "comm/processes/start_worker.h"
#include "comm/processes/world.h"

namespace bv {
namespace {

constexpr std::chrono::seconds grace_period{2};  // from SIGTERM to SIGKILL after a failure
// How long a worker that was asked to stop may lack a heartbeat, and may be saving.
constexpr std::chrono::seconds max_silence{5}, max_saving{60};
constexpr std::chrono::seconds max_leaving{10};  // after the first worker ended cleanly
constexpr int user_error = 2;                    // an exit code

template <size_t N>
std::string text_of(const std::array<char, N>& padded) {
  return {padded.data(), strnlen(padded.data(), N)};
}

std::string name_of_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : "signal " + std::to_string(number);
}

}  // namespace

bool is_stop_code(int code) {
  return std::ranges::any_of(stop_signals(), [&](int number) { return code == 128 + number; });
}

Supervisor::Supervisor(const Launch& launch, const std::string& program, const Restart& restart,
                       const HeldSignals& signals)
    : signals_(signals),
      launch_(launch),
      place_(launch.place),
      restart_(restart),
      may_restart_(restart.number < restart.most),
      first_rank_(place_.node * launch.nproc),
      region_(SharedRegion::create(place_.nodes * launch.nproc)) {
  try {
    for (int i = 0; i < launch.nproc; ++i)
      workers_.push_back(start_worker({i, launch, program, restart, region_.fd(), starting_mask_}));
  } catch (...) {
    end_at_once();
    throw;
  }
}

int Supervisor::run() {
  while (any_left()) {
    const bool looks = stopping_ || leaving_ || watches_alone() || launch_.others;
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

std::string Supervisor::error() const { return text_of(region_.control().error); }

int64_t Supervisor::step() const {
  int64_t most = 0;
  for (size_t i = 0; i < workers_.size(); ++i)
    most = std::max<int64_t>(most, region_.rank(rank_of(int(i))).step);
  return most;
}

std::string Supervisor::folder() const { return text_of(region_.control().folder); }

bool Supervisor::any_left() const {
  return std::ranges::any_of(workers_, [](pid_t pid) { return pid > 0; });
}

void Supervisor::signal_all(int number) {
  for (pid_t pid : workers_)
    if (pid > 0) kill(pid, number);
}

// Reaps `first`, then all others that have ended since the last call: their SIGCHLDs may have been
// merged into its own.
void Supervisor::reap(pid_t first) {
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

void Supervisor::ended(int worker, int status) {
  if (ending_) return;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (WIFEXITED(status) && (code == 0 || is_stop_code(code))) {
    // The others may still be saving. A worker that stops at a peer's request, before the signal
    // reaches it, exits with SIGTERM's code.
    if (code != 0) verdict_ = stopping_ ? 128 + stopping_ : code;
    if (!leaving_) leaving_ = Clock::now();
    return;
  }
  // Not to be restarted: a run that was being stopped when this worker failed, or whose worker was
  // killed by a stop signal before its handler was installed.
  const bool asked = stopping_ != 0 || is_stop_code(verdict_) || is_stop_code(code);
  const bool mistake = code == user_error || code == not_started;
  // A worker killed by our signal before its handler was installed is not reported.
  if (WIFEXITED(status) || WTERMSIG(status) != stopping_) say_end(worker, status, asked || mistake);
  verdict_ = code;
  end_others();
}

// "rank 3", with its node if there are several.
std::string Supervisor::name_of(int worker) const {
  std::string name = "rank " + std::to_string(rank_of(worker));
  if (place_.nodes == 1) return name;
  return name + " (node " + std::to_string(place_.node) + ", " + name_of_machine() + ")";
}

void Supervisor::say_end(int worker, int status, bool final) {
  const std::string who = name_of(worker);
  const bool said = region_.control().error_printed;
  // A single process has itself printed the error.
  const bool only = workers_.size() == 1 && place_.nodes == 1;
  const std::string line =
      WIFSIGNALED(status) ? who + " was killed by " + name_of_signal(WTERMSIG(status)) +
                                (WTERMSIG(status) == SIGKILL ? " (out of memory?)" : "")
                          : who + " ended with exit code " + std::to_string(WEXITSTATUS(status));
  const bool known = WIFEXITED(status) && said;
  const bool needed = !known || (WEXITSTATUS(status) != user_error && !only);
  if (known)  // perhaps printed by a peer of a rank that hangs
    fails(stopped_worker().value_or(worker), text_of(region_.control().error), needed ? line : "",
          final);
  else
    fails(worker, line, line, final);
}

// line: printed at once, unless a restart may follow: the restart's own line states the cause.
void Supervisor::fails(int worker, const std::string& cause, const std::string& line, bool final) {
  if (final || !may_restart_) {
    if (!line.empty()) print_error_line(line);
    return;
  }
  const int culprit = region_.control().culprit - 1, rank = culprit < 0 ? rank_of(worker) : culprit;
  const bool is_here = first_rank_ <= rank && rank < first_rank_ + int(workers_.size());
  failure_ = Failure{.rank = rank,
                     .step = region_.rank(is_here ? rank : rank_of(worker)).step,
                     .cause = cause,
                     .seen = cause == line};
  unsaid_ = line;
}

// A worker whose whole process hangs, if there is one: its peers gave up waiting for it.
std::optional<int> Supervisor::stopped_worker() const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const RankStatus& status = region_.rank(rank_of(int(i)));
    if (workers_[i] > 0 && status.state == RankState::here && !has_heartbeat(status)) return int(i);
  }
  return std::nullopt;
}

void Supervisor::end_others() {
  ending_ = true;
  kill_at_ = Clock::now() + grace_period;
  region_.end_waiting();
  signal_all(SIGTERM);
}

// A signal from the user or the batch system: the first is passed on, a second ends the run.
void Supervisor::stop(int number) {
  if (stopping_ == 0 && !ending_) {
    stopping_ = number;
    stopped_at_ = Clock::now();
    signal_all(number);
    signal_all(SIGCONT);  // one that was stopped by SIGSTOP has to save, too
    return;
  }
  if (!ending_ || failure_) verdict_ = 128 + number;
  if (failure_) {  // the signal prevents the restart
    if (!unsaid_.empty()) print_error_line(unsaid_);
    failure_.reset();
  }
  ending_ = true;
  kill_at_ = Clock::now();
}

void Supervisor::look_at_workers() {
  // Before the first step, the processes may still meet at the same port.
  if (launch_.others && !stopping_ && !ending_ && step() > 0)
    launch_.others->answer_latecomers(restart_);
  if (stopping_ && !ending_) look_at_stopping();
  if (leaving_ && !ending_) look_at_leaving();
  if (watches_alone() && !ending_) look_at_all();
}

// If all processes of a machine hang, none of them notices.
bool Supervisor::watches_alone() const { return may_restart_ && !stopping_ && !leaving_; }
bool Supervisor::all_hang() const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const RankStatus& status = region_.rank(rank_of(int(i)));
    if (status.state != RankState::here || has_heartbeat(status)) return false;
  }
  return true;
}

// Called once a second. Counts calls, so the time that a machine is suspended doesn't count.
void Supervisor::look_at_all() {
  silent_seconds_ = all_hang() ? silent_seconds_ + 1 : 0;
  if (silent_seconds_ < launch_.timeout) return;
  char text[64];
  std::snprintf(text, sizeof text, " has given no sign of life for %g s (--timeout)",
                launch_.timeout);
  fails(0, name_of(0) + text, name_of(0) + text, false);
  verdict_ = 1;
  ending_ = true;
  kill_at_ = Clock::now();
}

// Ends a run that doesn't react to being stopped.
void Supervisor::look_at_stopping() {
  const auto waited = Clock::now() - stopped_at_;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const RankStatus& status = region_.rank(rank_of(int(i)));
    if (workers_[i] == 0 || status.state != RankState::here) continue;
    const bool silent = waited > max_silence && !has_heartbeat(status);
    if (!silent && (waited < max_saving || status.busy == Busy::no)) continue;
    print_error_line(name_of(int(i)) +
                     (silent ? " does not react to " : " is still saving 60 s after ") +
                     name_of_signal(stopping_) + "; ending the run");
    verdict_ = 128 + stopping_;
    ending_ = true;
    kill_at_ = Clock::now();
    return;
  }
}

// Kills a worker that hangs while it ends; the run only waits for that worker.
void Supervisor::look_at_leaving() {
  if (Clock::now() - *leaving_ < max_leaving) return;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == 0 || has_heartbeat(region_.rank(rank_of(int(i))))) continue;
    const std::string line = name_of(int(i)) + " has not ended " +
                             std::to_string(max_leaving.count()) +
                             " s after the others did, and shows no sign of life; killing it";
    fails(int(i), line, line, is_stop_code(verdict_));
    verdict_ = 1;
    ending_ = true;
    kill_at_ = Clock::now();
    return;
  }
}

void Supervisor::end_at_once() {
  signal_all(SIGKILL);
  for (pid_t pid : workers_) waitpid(pid, nullptr, 0);
}

}  // namespace bv
