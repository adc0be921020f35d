// The launcher: starts N workers of this same program, supervises them and ends with their verdict.
#pragma once
#include <string>
#include <vector>

namespace bv {

// This machine's place in a run on several (nodes), each with a launcher of its own and as many
// workers.
struct NodePlace {
  int node = 0, nodes = 1;
  std::string master_addr;  // of node 0
  int master_port = 29500;
};

// Starts `nproc` workers with argv unchanged (tests start another `program`) and returns the exit
// code to end with. A worker that fails ends the run: the launcher says which rank died first and
// of what (except for a user error, which the worker has printed) and passes its exit code on.
// Stop signals are passed on; if the workers stop for one (128 + signal), so does the launcher; a
// second one kills, and so does a worker that shows no life some seconds after the first. Workers
// die with the launcher. Call it before any thread is started.
int run_launcher(int nproc, const std::vector<std::string>& argv, const NodePlace& = {},
                 const std::string& program = "/proc/self/exe");

}  // namespace bv
