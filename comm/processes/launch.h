// The launcher: starts N workers of this program, supervises them and returns their exit code.
#pragma once
#include <string>
#include <vector>

namespace bv {

// This machine's place in a run on several machines (nodes), each with its own launcher and the
// same number of workers.
struct NodePlace {
  int node = 0, nodes = 1;
  std::string master_addr;  // of node 0
  int master_port = 29500;
};

// Starts `nproc` workers with argv unchanged (tests start another `program`) and returns the exit
// code to end with. If a worker fails, the run ends: the launcher prints which rank died first and
// why (except for a user error, which the worker has printed) and returns that worker's exit code.
// Stop signals are passed on; if the workers stop because of one (128 + signal), so does the
// launcher. A second signal kills the workers, as does the lack of a heartbeat some seconds after
// the first. Workers die with the launcher. Call it before any thread starts.
int run_launcher(int nproc, const std::vector<std::string>& argv, const NodePlace& = {},
                 const std::string& program = "/proc/self/exe");

}  // namespace bv
