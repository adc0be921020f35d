#include "base/other_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/stop_signals.h"
#include "base/wait.h"

namespace bv {
namespace {

pid_t spawn(const std::vector<std::string>& words, const std::string& input, int output) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t as_usual;  // reset to the default action, since this process ignores them
  sigemptyset(&as_usual);
  sigaddset(&as_usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &as_usual);
  const sigset_t mask = starting_signal_mask();
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int code = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (code != 0)
    throw UserError("can't start the program " + words[0] + ": " + std::strerror(code) +
                    (code == ENOENT ? "; make deps installs what is missing" : ""));
  return pid;
}

}  // namespace

ProgramEnd run_to_end(const std::vector<std::string>& words, const std::function<bool()>& go_on,
                      const std::string& input) {
  constexpr size_t enough = 1 << 16;  // longest output that is kept
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw RunError(std::string("pipe: ") + std::strerror(errno));
  Descriptor from(ends[0]), to(ends[1]);
  const pid_t pid = spawn(words, input, to.fd());
  to.close_now();
  ProgramEnd end{};
  bool told = false;
  while (true) {
    if (!told && !go_on()) told = kill(pid, SIGTERM) == 0;
    pollfd item{from.fd(), POLLIN, 0};
    if (wait_for_files({&item, 1}, 100) <= 0) continue;
    char text[4096];
    const ssize_t n = read(from.fd(), text, sizeof text);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (end.output.size() < enough) end.output.append(text, size_t(n));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

std::string sha256_of(const std::string& path) {
  const ProgramEnd end = run_to_end(
      {"sha256sum"}, [] { return true; }, path);
  if (end.code != 0) throw RunError("sha256sum: " + end.output);
  return end.output.substr(0, end.output.find(' '));
}

}  // namespace bv
