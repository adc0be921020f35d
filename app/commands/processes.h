// Runs a command in several processes: starts them and connects them.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "engine/options/command_line.h"
#include "engine/setup/same_options.h"
#include "engine/setup/setup.h"

namespace bv {

// A process of a run. Backend and communicator outlive an error: peers must not see this rank leave
// before its error line is printed.
struct Process {
  World world;
  std::unique_ptr<Backend> backend = nullptr;
  std::unique_ptr<Communicator> communicator = nullptr;
};

// Runs `work` in each process of the run. A worker (of our launcher or another one) runs it here;
// otherwise this process starts as many processes as `options` requests, with the same argv, and
// supervises them. --plan runs in this process alone. `options` reports mistakes in the command
// line before any process starts.
int in_processes(const CommandLine&, const std::vector<std::string>& argv,
                 const std::function<Options()>& options, const std::function<int(Process&)>& work);

// The number of processes on this machine: -n, or its default.
int processes_here(const Options&);

std::unique_ptr<Backend> open_backend(DeviceKind, const BackendOptions&);
struct Connection {
  std::unique_ptr<Communicator> communicator;
  AllReduce all_reduce;
  std::string nodes;  // which ranks run where, with several machines
};
// Connects to the other processes, which must have the same options and resume from the same step.
// Fills in the world's seats.
Connection connect(World&, const Options&, const StartFacts&, const DeviceChoice&, Backend&);

// The process's exit code for an error: 2 for a mistake of the user's.
int exit_code(const std::exception&);

}  // namespace bv
