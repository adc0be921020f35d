// The program: the launcher that starts a command's processes, and the workers.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>

#include "app/commands/commands.h"
#include "app/commands/processes.h"
#include "base/error.h"
#include "base/stop_signals.h"

int main(int argc, char** argv) {
  bv::hold_stop_signals();
  // Files must not get the descriptors of closed standard streams.
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {
  }
  if (fd >= 0) close(fd);
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);  // writes then fail
  try {
    return bv::run_command({argv, argv + argc});
  } catch (const std::exception& e) {
    bv::print_error_line(bv::error_line(e));
    return bv::exit_code(e);
  }
}
