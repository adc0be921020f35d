// Requests to stop: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which batch systems send before a job's
// time limit. All threads block them and one thread waits for them, because a handler would run on
// the stack of a computing thread, and a library may keep data below its stack pointer: oneDNN's
// AVX2 code does.
#pragma once
#include <csignal>
#include <functional>
#include <span>

namespace bv {

std::span<const int> stop_signals();  // without SIGHUP under nohup

// Blocks the signals in this thread and in threads that it starts later; called first in main().
// Blocked signals stay pending until one of the functions below handles them. Without this call
// those do nothing: the program handles signals itself.
void hold_stop_signals();
// The signal mask before hold_stop_signals(), for starting other programs.
sigset_t starting_signal_mask();

// From now on a stop signal is a request. Another one, more than a second later, ends the process.
void catch_stop_signals();
// The first stop signal caught, or 0.
int stop_signal();

// From now on a stop signal ends the process at once, as if it weren't held.
void end_on_stop_signals();
// A stop signal ends the process during this object's lifetime and is caught afterwards. clean_up
// is called before the process ends, on the signal thread, concurrently with all other threads.
class EndsOnStopSignals {
 public:
  explicit EndsOnStopSignals(std::function<void()> clean_up);
  ~EndsOnStopSignals() { catch_stop_signals(); }
  EndsOnStopSignals(const EndsOnStopSignals&) = delete;
  EndsOnStopSignals& operator=(const EndsOnStopSignals&) = delete;
};

}  // namespace bv
