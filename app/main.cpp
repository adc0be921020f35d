// The program: the launcher that starts a command's processes, and the workers.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "app/commands/commands.h"
#include "base/stop_signals.h"

int main(int argc, char** argv) {
  bv::hold_stop_signals();
  // Files must not get the descriptors of closed standard streams.
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) close(fd);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);  // writes then fail
  return bv::run_command({argv, argv + argc});
}
