// Starts this machine's processes and watches them until they end: one attempt of a run.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/stop_signals.h"
#include "comm/local/shared_region.h"
#include "comm/processes/held_signals.h"
#include "comm/processes/launch_options.h"
#include "comm/processes/restart.h"

namespace bv {

// Whether a worker with this exit code stopped cleanly on request, ours or someone else's.
bool is_stop_code(int code);

class Supervisor {
 public:
  // Starts the processes.
  Supervisor(const Launch&, const std::string& program, const Restart&, const HeldSignals&);
  Supervisor(const Supervisor&) = delete;

  // Returns the exit code.
  int run();
  // Why the run ended, if it may be started again.
  const std::optional<Failure>& failure() const { return failure_; }
  // The line that the first worker to fail has printed, or "".
  std::string error() const;
  // The line about this end that is still to be printed, or "".
  const std::string& unsaid() const { return unsaid_; }
  // The furthest step of any rank of this machine.
  int64_t step() const;
  std::string folder() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool any_left() const;
  void signal_all(int number);
  void reap(pid_t first);
  void ended(int worker, int status);
  int rank_of(int worker) const { return first_rank_ + worker; }
  std::string name_of(int worker) const;
  void say_end(int worker, int status, bool final);
  void fails(int worker, const std::string& cause, const std::string& line, bool final);
  std::optional<int> stopped_worker() const;
  void end_others();
  void stop(int number);
  void look_at_workers();
  bool watches_alone() const;
  bool all_hang() const;
  void look_at_all();
  void look_at_stopping();
  void look_at_leaving();
  void end_at_once();

  const HeldSignals& signals_;
  const sigset_t starting_mask_ = starting_signal_mask();
  const Launch& launch_;
  const NodePlace& place_;
  const Restart& restart_;
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
  int silent_seconds_ = 0;  // that all workers have lacked a heartbeat
  std::optional<Failure> failure_;
  std::string unsaid_;
};

}  // namespace bv
