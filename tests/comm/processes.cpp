#include "tests/comm/processes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "comm/processes/launch.h"

namespace bv::test {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Child::Child(const std::function<int()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  // Orphans become children of this process, which can then wait for them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    setpgid(0, 0);
    // The tests' own parent may ignore these signals.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]), close(ends[1]);
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "threw %s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  setpgid(pid_, pid_);  // in parent and child, as either may run first
  close(ends[1]);
  errors_fd_ = ends[0];
}

Child::~Child() {
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(errors_fd_);
}

bool Child::read_some(double seconds) {
  pollfd item{errors_fd_, POLLIN, 0};
  if (poll(&item, 1, static_cast<int>(seconds * 1000)) <= 0) return true;
  char buffer[4096];
  const ssize_t n = read(errors_fd_, buffer, sizeof buffer);
  if (n > 0) errors_.append(buffer, n);
  return n > 0;
}

Ending Child::wait(double limit) {
  const double start = seconds_now();
  Ending ending;
  while (read_some(0.05) && seconds_now() - start < limit) continue;
  int status;
  pid_t done;
  while ((done = waitpid(pid_, &status, WNOHANG)) == 0 && seconds_now() - start < limit)
    pause_a_millisecond();
  if (done == pid_) ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ending.errors = errors_;
  return ending;
}

bool Child::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid_;
}

bool Child::anyone_left() const {
  // A process killed a moment ago may still be ending.
  return !wait_until([this] {
    while (waitpid(-pid_, nullptr, WNOHANG) > 0) continue;
    return kill(-pid_, 0) != 0 && errno == ESRCH;
  });
}

std::string Child::errors_until(const std::string& text) {
  const double start = seconds_now();
  while (errors_.find(text) == std::string::npos && seconds_now() - start < hang)
    if (!read_some(0.05)) break;
  return errors_;
}

void expect_all_end_well(Ranks& ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Ending ending = ranks[i]->wait();
    EXPECT_EQ(ending.code, 0) << "process " << i << ": " << ending.errors;
  }
}

void expect_failure(Child& rank, const std::string& errors) {
  const Ending ending = rank.wait();
  EXPECT_EQ(ending.code, 1);
  EXPECT_EQ(ending.errors, errors);
}

int launch_workers(int nproc, const std::string& words, int max_restarts) {
  setenv(worker_variable, words.c_str(), 1);
  return run_launcher({.nproc = nproc, .argv = {"tests"}, .max_restarts = max_restarts});
}

std::string without_warning(const std::string& errors) {
  const std::string line = errors.substr(0, errors.find('\n') + 1);
  const bool cores = line.starts_with("warning:") && line.find(" processes share ") != line.npos;
  return cores ? errors.substr(line.size()) : errors;
}

void pause_a_millisecond() { usleep(1000); }

char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? 0 : stat[name_end + 2];
}

std::vector<pid_t> children_of(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

Gate::Gate() {
  if (pipe(ends_) != 0) throw std::runtime_error("pipe");
}
Gate::~Gate() { close(ends_[0]), close(ends_[1]); }
void Gate::open() const {
  if (write(ends_[1], "o", 1) != 1) throw std::runtime_error("write");
}
bool Gate::is_open() const { return is_open_within(0); }
void Gate::wait() const {
  if (!is_open_within(int(hang * 1000))) throw std::runtime_error("nobody has opened the gate");
}
bool Gate::is_open_within(int milliseconds) const {
  pollfd item{ends_[0], POLLIN, 0};  // the byte stays for the other waiters
  return poll(&item, 1, milliseconds) == 1;
}

std::string own_path() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, n > 0 ? n : 0);
}

}  // namespace bv::test
