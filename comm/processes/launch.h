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
  int least = 1;  // MIN of --nnodes MIN:MAX: the fewest nodes of a start
};

struct Launch;

// The agreement of all nodes' launchers on the next start.
struct Agreement {
  Restart restart;
  int node = 0, nodes = 1;  // of the next start; the launchers that met number their nodes from 0
};

class OtherLaunchers {
 public:
  virtual ~OtherLaunchers() = default;
  // Called before each start and after each end.
  virtual Agreement meet(const Launch&, const Restart& own) = 0;
  // Called about once a second while the processes of the start `running` train.
  virtual void answer_latecomers(const Restart& running) = 0;
};

struct Launch {
  int nproc = 1;
  std::vector<std::string> argv;
  NodePlace place = {};
  int max_restarts = 0;
  double timeout = 60;  // seconds that all workers may lack a heartbeat
  OtherLaunchers* others = nullptr;
  bool begun = false;  // the run has a folder: its launchers may have met before
  int min_nproc = 0;   // fewest processes of a restart; 0: always nproc
  // Whether nproc processes can train the run. folder: as in Restart.
  std::function<bool(int nproc, const std::string& folder)> fits = {};
  std::vector<int> devices = {};  // by local rank; empty: all, in order
};

// Starts `nproc` workers with argv unchanged (tests start another `program`) and returns the exit
// code to end with. If a worker fails, the run ends: the launcher prints which rank died first and
// why (except for a user error, which the worker has printed) and returns that worker's exit code.
// Up to max_restarts times it starts all workers again instead, after a pause that grows from 1 s
// to 30 s while the run makes no progress; not after a user error, a stop signal or a second end in
// the same step. The workers find the restart in their environment (restart.h). A worker that fails
// twice in a row before its first step is left out, with its device, if min_nproc allows it: the
// next start has the largest smaller number of workers that `fits`.
// Stop signals are passed on; if the workers then exit with 128 + signal, so does the launcher. A
// second signal kills the workers, as does the lack of a heartbeat a few seconds after the first
// signal. Workers die with the launcher. Must be called before any thread starts.
int run_launcher(const Launch&, const std::string& program = "/proc/self/exe");

}  // namespace bv
