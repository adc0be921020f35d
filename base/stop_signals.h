// Requests to stop: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which batch systems send before a job's
// time is up. All threads block them and one thread waits for them.
// A handler would run on the stack of a thread that computes, below whose stack pointer a library
// may keep data: oneDNN's AVX2 code does.
#pragma once
#include <csignal>
#include <functional>
#include <span>

namespace bv {

std::span<const int> stop_signals();  // without SIGHUP where nohup has it ignored

// Blocks them in this thread and in those that it starts later, so main() begins with it. They stay
// pending until one of the following says what to do with them.
void hold_stop_signals();
// The signal mask from before, which child programs are started with.
sigset_t starting_signal_mask();

// From now on a stop signal is a request. A second one, a second later, ends the process.
void catch_stop_signals();
// The same in a program that holds them; in another, which handles them itself, does nothing.
void catch_held_stop_signals();
// The first stop signal caught, or 0.
int stop_signal();

// From now on a stop signal ends the process at once, as if it weren't held.
void end_on_stop_signals();
// The same while this lives; then they are caught. clean_up is called before the end, on another
// thread, whatever this one is doing.
class EndsOnStopSignals {
 public:
  explicit EndsOnStopSignals(std::function<void()> clean_up);
  ~EndsOnStopSignals() { catch_stop_signals(); }
  EndsOnStopSignals(const EndsOnStopSignals&) = delete;
  EndsOnStopSignals& operator=(const EndsOnStopSignals&) = delete;
};

}  // namespace bv
