// Starts one worker of this machine.
#pragma once
#include <sys/types.h>

#include <csignal>
#include <string>

#include "comm/processes/launch_options.h"
#include "comm/processes/restart.h"

namespace bv {

struct WorkerStart {
  int local_rank;
  const Launch& launch;  // its place is that of this start
  const std::string& program;
  const Restart& restart;
  int shared_fd;            // inherited by the worker
  const sigset_t& signals;  // the worker's mask
};

// Exit code of a child that can't start the program.
inline constexpr int not_started = 127;

// Returns the child's pid. The child is killed when this process ends. Throws RunError.
pid_t start_worker(const WorkerStart&);

}  // namespace bv
