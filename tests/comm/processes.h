// Tests of several processes: children that run a function, their output, how they end.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bv::test {

struct Ending {
  int code = -1;       // exit code, or 128 + signal; -1: still running when time was up
  double seconds = 0;  // from the call of wait
  std::string errors;  // everything written to stderr
};

// A child process in a group of its own, with all its descendants; killed with this object.
class Child {
 public:
  explicit Child(const std::function<int()>& body);  // its result is the exit code
  Child(const Child&) = delete;
  ~Child();
  pid_t pid() const { return pid_; }
  Ending wait(double limit = 10);  // until it and all that hold its stderr have ended
  bool anyone_left() const;        // in its group
  std::string errors_until(const std::string& text, double limit = 10);

 private:
  bool read_some(double seconds);  // false at the end of the output

  pid_t pid_;
  int errors_fd_;
  std::string errors_;
};

using Ranks = std::vector<std::unique_ptr<Child>>;
void expect_all_end_well(Ranks&);                        // with 0
void expect_failure(Child&, const std::string& errors);  // with 1

// Runs the launcher with the test program itself as the workers; `words` names one of those in
// launch_workers.cpp.
int launch_workers(int nproc, const std::string& words);
inline constexpr const char* worker_variable = "BAREVISION_TEST_WORKER";
std::string own_path();

// The errors without the launcher's warning of too few cores, which depends on the machine.
std::string without_warning(const std::string& errors);

double seconds_now();

}  // namespace bv::test
