// The launcher: starts N workers of this program, supervises them and returns their exit code.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/processes/restart.h"

namespace bv {

// This machine's place in a run on several machines (nodes), each with its own launcher and the
// same number of workers.
struct NodePlace {
  int node = 0, nodes = 1;
  std::string master_addr;  // of node 0
  int master_port = 29500;
};

struct Launch {
  int nproc = 1;
  std::vector<std::string> argv;
  NodePlace place = {};
  int max_restarts = 0;
  double timeout = 60;  // seconds without a sign of life from all of them
  // Called before each start and after each end, if set: agrees with the launchers of other nodes.
  std::function<Restart(const Launch&, const Restart& own)> meet = {};
};

// Starts `nproc` workers with argv unchanged (tests start another `program`) and returns the exit
// code to end with. If a worker fails, the run ends: the launcher prints which rank died first and
// why (except for a user error, which the worker has printed) and returns that worker's exit code.
// Up to max_restarts times it starts all again instead, after a pause that grows from 1 s to 30 s
// while the run comes no further; not after a user error, a stop signal or a second end in the same
// step. The workers learn of it by restart.h.
// Stop signals are passed on; if the workers stop because of one (128 + signal), so does the
// launcher. A second signal kills the workers, as does the lack of a heartbeat some seconds after
// the first. Workers die with the launcher. Call it before any thread starts.
int run_launcher(const Launch&, const std::string& program = "/proc/self/exe");

}  // namespace bv
