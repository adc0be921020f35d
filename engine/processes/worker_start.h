// Starts one worker process: its environment, its cores, its tie to the launcher.
#pragma once
#include <csignal>
#include <string>
#include <vector>

#include "engine/processes/affinity.h"

namespace bv {

struct WorkerStart {
  int rank, size;
  const std::string& program;
  const std::vector<std::string>& argv;
  int shared_fd;            // inherited by the worker
  const sigset_t& signals;  // the worker's mask
};

// Forks and executes the program as a child that the kernel kills when the calling thread ends.
// Returns its process id; throws RunError.
pid_t start_worker(const WorkerStart&);

}  // namespace bv
