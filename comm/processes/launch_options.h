// Options of a launch, with this machine's place among others and their launchers.
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

}  // namespace bv
