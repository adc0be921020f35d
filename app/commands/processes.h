// A command that runs in several processes: what starts them, and what each begins with.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes/world.h"
#include "engine/options/command_line.h"
#include "engine/setup/setup.h"

namespace bv {

// A process of a run. What it computes and talks with outlives an error: peers must not see this
// rank leave before its line is printed.
struct Process {
  World world;
  std::unique_ptr<Backend> backend = nullptr;
  std::unique_ptr<Communicator> communicator = nullptr;
};

// Calls `work` in each process of the run: in this one, if it is one of them (of our launcher or
// another's); else it starts as many as `options` asks for, with the same argv, and supervises
// them. --plan needs no other process than this one. `options` finds the command line's mistakes
// before any process starts.
int in_processes(const CommandLine&, const std::vector<std::string>& argv,
                 const std::function<Options()>& options, const std::function<int(Process&)>& work);

// How many processes this machine runs: -n, or its default.
int processes_here(const Options&);

std::unique_ptr<Backend> open_backend(DeviceKind, const BackendOptions&);
struct Connection {
  std::unique_ptr<Communicator> communicator;
  AllReduce all_reduce;
  std::string nodes;  // which ranks are where, on several machines
};
// To the other processes, which must have the same options and resume from the same step. Fills in
// the world's seats.
Connection connect(World&, const Options&, int64_t resumed_step, const DeviceChoice&, Backend&);

// The process's exit code for an error: 2 for the user's mistake.
int exit_code(const std::exception&);

}  // namespace bv
