// For tests with several processes: children that run a function, their output and exit codes.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bv::test {

// Seconds that only a hang takes, however busy the machine is.
inline constexpr double hang = 300;

double seconds_now();
void pause_a_millisecond();

// Checks every millisecond whether the condition holds; false: it never held within `hang` seconds.
template <class Condition>
bool wait_until(Condition holds) {
  for (const double start = seconds_now(); !holds();) {
    if (seconds_now() - start > hang) return false;
    pause_a_millisecond();
  }
  return true;
}

struct Ending {
  int code = -1;       // exit code, or 128 + signal; -1: still running when time was up
  std::string errors;  // everything written to stderr
};

// A child process in its own process group, killed with all its descendants by the destructor.
class Child {
 public:
  explicit Child(const std::function<int()>& body);  // returns the exit code
  Child(const Child&) = delete;
  ~Child();
  pid_t pid() const { return pid_; }
  Ending wait(double limit = hang);  // for the child and all processes that hold its stderr
  bool has_ended() const;
  bool anyone_left() const;  // in its group
  std::string errors_until(const std::string& text);

 private:
  bool read_some(double seconds);  // false at the end of the output

  pid_t pid_;
  int errors_fd_;
  std::string errors_;
};

// Waits until one of two Childs, or of two Programs, has ended, and returns it.
template <class Process>
Process& first_to_end(Process& one, Process& other) {
  wait_until([&] { return one.has_ended() || other.has_ended(); });
  return one.has_ended() ? one : other;
}

using Ranks = std::vector<std::unique_ptr<Child>>;
void expect_all_end_well(Ranks&);                        // with exit code 0
void expect_failure(Child&, const std::string& errors);  // with exit code 1

// Runs the launcher with the test program as the workers; `words` names one of the workers in
// tests/comm/workers.h.
int launch_workers(int nproc, const std::string& words, int max_restarts = 0);
inline constexpr const char* worker_variable = "BAREVISION_TEST_WORKER";
std::string own_path();

// The errors without the launcher's warning of too few cores, which depends on the machine.
std::string without_warning(const std::string& errors);

// The state in /proc/PID/stat: T for a stopped process, Z for one that has ended and waits for its
// parent; 0 if no process has this id.
char state_of(pid_t);
std::vector<pid_t> children_of(pid_t);

// Processes forked after the gate was made wait at it until one process opens it.
class Gate {
 public:
  Gate();
  Gate(const Gate&) = delete;
  ~Gate();
  void open() const;
  bool is_open() const;
  void wait() const;

 private:
  bool is_open_within(int milliseconds) const;
  int ends_[2];
};

}  // namespace bv::test
