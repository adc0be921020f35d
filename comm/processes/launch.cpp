// Single-threaded on purpose: PR_SET_PDEATHSIG, which kills the workers with the launcher however
// it ends, fires when the forking *thread* ends.
#include "comm/processes/launch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/processes/affinity.h"
#include "comm/processes/restart.h"
#include "comm/processes/supervisor.h"

namespace bv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds max_pause{30};  // before a restart; the first pause is 1 s

// Starts the processes, and starts them again after each failure that a restart may help.
class Restarts {
 public:
  Restarts(const Launch& launch, const std::string& program)
      : launch_(launch), program_(program), start_(launch), next_{.most = launch.max_restarts} {}

  int run() {
    int code = 1;
    while (true) {
      if (launch_.others) {
        if (const std::optional<int> ends = agree()) return *ends;
        if (died_there_before()) return code;
      }
      say_processes();
      Supervisor attempt(start_, program_, next_, signals_);
      code = attempt.run();
      if (attempt.failure()) keep_unlogged(attempt.failure()->step);
      next_.processes = processes();
      if (!attempt.failure()) {
        if (!launch_.others || next_.most == 0 || is_stop_code(code)) return code;
        next_.ends = code;
        next_.unlogged.clear();
        if (code != 0) next_.after = {.cause = attempt.error()};
        continue;
      }
      if (next_.after.step > 0) next_.step_before = next_.after.step;
      const Failure before = std::exchange(next_.after, *attempt.failure());
      if (!launch_.others && died_there_before(attempt.unsaid())) return code;
      if (const int signal = pause(attempt)) return 128 + signal;
      if (!attempt.folder().empty()) next_.folder = attempt.folder();
      ++next_.number;
      if (next_.number > 1 && before.step == 0) leave_out_if_twice(before);
    }
  }

 private:
  int processes() const { return start_.nproc * start_.place.nodes; }

  // Agrees with the other nodes' launchers on the next start, or returns the agreed exit code.
  std::optional<int> agree() {
    const std::optional<int> own = next_.ends;
    const bool fresh = next_.number == 0;
    try {
      Agreement agreed = launch_.others->meet(launch_, next_);
      next_ = std::move(agreed.restart);
      start_.place.node = agreed.node;
      start_.place.nodes = agreed.nodes;
      if (fresh && next_.number > 0 && !next_.ends)
        print_error_line("node " + std::to_string(agreed.node) + ": joins the run at " +
                         name_of_restart(next_.number));
    } catch (const std::exception&) {
      if (own.value_or(0) != 0) return own;  // its reason has been printed
      throw;
    }
    if (!next_.ends || own.value_or(0) != 0) return own.value_or(0) != 0 ? own : std::nullopt;
    if (!next_.after.cause.empty() && *next_.ends != 0) print_error_line(next_.after.cause);
    return next_.ends;
  }

  // Whether the run ended in this step before; if so, prints it. Ends before step 1 don't count.
  bool died_there_before(const std::string& unsaid = "") const {
    const Failure& failure = next_.after;
    if (failure.step == 0 || failure.step != next_.step_before) return false;
    if (!unsaid.empty()) print_error_line(unsaid);
    print_error_line("rank " + std::to_string(failure.rank) + ": the run has ended in step " +
                     std::to_string(failure.step) +
                     " for the second time, so it is not started again");
    return true;
  }

  // After a failure in `step`: if it is 0, keeps this restart for the log of the next start.
  void keep_unlogged(int64_t step) {
    std::vector<Restart>& kept = next_.unlogged;
    if (step > 0) return kept.clear();
    if (next_.number == 0) return;
    Restart own = next_;
    own.unlogged.clear();
    own.folder.clear();
    kept.push_back(std::move(own));
    if (kept.size() > Restart::most_unlogged) kept.erase(kept.begin());
  }

  // Prints why the run is started again, and waits. Returns a stop signal if one arrives, or 0.
  int pause(const Supervisor& attempt) {
    const Failure& failure = next_.after;
    next_.fruitless = attempt.step() > next_.furthest ? 0 : next_.fruitless + 1;
    next_.furthest = std::max(next_.furthest, attempt.step());
    const auto seconds =
        std::min(max_pause, std::chrono::seconds(1LL << std::min(next_.fruitless, 10)));
    print_error_line(name_of_restart(next_.number + 1) + " in " + std::to_string(seconds.count()) +
                     " s; the run ended " +
                     (failure.step > 0 ? "in step " + std::to_string(failure.step)
                                       : std::string("before its first step")) +
                     ": " + failure.cause);
    const auto end = Clock::now() + seconds;
    while (Clock::now() < end)
      if (const int signal = signals_.next(end).si_signo; signal != 0 && signal != SIGCHLD) {
        print_error_line("stopped before the restart");
        return signal;
      }
    return 0;
  }

  std::string name_of_restart(int number) const {
    return "restart " + std::to_string(number) + " of " + std::to_string(next_.most);
  }

  // Leaves out a process that failed before its first step twice in a row, and its device.
  void leave_out_if_twice(const Failure& before) {
    const Failure& failure = next_.after;
    if (launch_.min_nproc == 0 || failure.step != 0 || failure.rank != before.rank) return;
    int fewer = start_.nproc - 1;
    while (fewer >= launch_.min_nproc && !launch_.fits(fewer, next_.folder)) --fewer;
    if (fewer < launch_.min_nproc) return;
    std::vector<int>& devices = start_.devices;
    if (devices.empty()) {
      devices.resize(size_t(start_.nproc));
      std::iota(devices.begin(), devices.end(), 0);
    }
    devices.erase(devices.begin() + failure.rank);
    devices.resize(size_t(fewer));
    start_.nproc = fewer;
    left_out_ = "; rank " + std::to_string(failure.rank) +
                " is left out: it failed twice before its first step";
  }

  // Prints a line if the number of processes has changed since the previous start.
  void say_processes() {
    if (next_.number == 0 || next_.processes == 0 || next_.processes == processes()) return;
    print_error_line(name_of_restart(next_.number) + ": " + std::to_string(processes()) +
                     (processes() == 1 ? " process, " : " processes, ") +
                     std::to_string(next_.processes) + " before" + left_out_);
    left_out_.clear();
  }

  const Launch& launch_;
  const std::string& program_;
  const HeldSignals signals_;
  Launch start_;  // with the processes of the next start
  Restart next_;
  std::string left_out_;  // why a process was left out
};

}  // namespace

int run_launcher(const Launch& launch, const std::string& program) {
  const int nproc = launch.nproc;
  if (nproc < 1)
    throw UserError("-n " + std::to_string(nproc) + ": at least one process is needed");
  requested_threads(true);  // an invalid value is refused here, not by every worker
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
