// This process's identity among its peers, from the environment set by its launcher: ours,
// torchrun, Slurm, Open MPI, or Hydra, which MPICH and Intel MPI use.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace bv {

// A rank's place on the machines (nodes) of a run.
struct NodePlacement {
  int node = 0, local_rank = 0;
  std::string machine;  // its name
  std::string address;  // at which other machines reach it
};

struct World {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  bool launched = false;   // by our launcher: a worker even if -n is on the command line
  bool launchers = false;  // the ranks are the launchers themselves, one per node
  std::string patience = "--timeout";  // for messages: how long the ranks wait for each other
  int least_nodes = 0;                 // of launchers: the fewest nodes of a start
  int max_restarts = 0;                // of launchers
  int device = -1;                     // device number on this machine; -1: the local rank
  int shared_fd = -1;  // memory shared with the peers: from our launcher, or set by connecting
  std::string master;  // "addr:port" or a job's id: the meeting point under another launcher
  std::string host;    // MASTER_ADDR: rank 0's machine if there are several, or empty
  int port = 29500;    // MASTER_PORT
  std::string secret;  // BAREVISION_SECRET, shared by all ranks, or empty
  int node = -1, nodes = 0;  // this machine's number, and how many; -1, 0: not set by the launcher
  std::string machine;       // this machine's name
  std::vector<NodePlacement> seats;  // by rank, once connected; empty on one machine
  bool several_machines() const { return local_size != size; }
  // The port for ranks on several machines. Under torchrun, its agent listens on MASTER_PORT.
  int meeting_port() const { return launched ? port : port + 1; }
  std::string name_of(int of_rank) const;  // "rank 3 (node 1, HOST)"; on one machine "rank 3"
  std::string variables;  // the variables this was read from, for messages: "RANK, WORLD_SIZE ..."
};

// The environment variable in which our launcher passes the inherited memory's file descriptor.
inline constexpr const char* shared_fd_variable = "BAREVISION_SHARED_FD";
// ... and the number of the worker's device, if it is not the local rank.
inline constexpr const char* device_variable = "BAREVISION_DEVICE";

// Whether our own launcher has started this process.
bool is_launched_worker();

std::string name_of_machine();

// The words after which this process starts so many ranks here: "-n 4", or with the variable left out
// that makes refuse_other_launchers() refuse that.
std::string command_to_start_here(int ranks);

// Throws UserError if mpirun, mpiexec, srun or torchrun have started this process as one of
// several: each would start a run of its own.
void refuse_other_launchers();

// The World that a launcher's variables describe; nullopt if none are set. Throws UserError if they
// are incomplete or contradictory.
std::optional<World> world_from_environment();

// Numbers the nodes of all seats from 0, in the order of their first ranks. If the launcher gave no
// numbers (node -1), machines with equal names are one node.
void number_nodes(std::vector<NodePlacement>&);
// ranks_of_node: the ranks of `rank`'s node. ranks_across: the ranks that have its place on their
// nodes; empty if the nodes have different numbers of ranks.
std::vector<int> ranks_of_node(const std::vector<NodePlacement>&, int rank);
std::vector<int> ranks_across(const std::vector<NodePlacement>&, int rank);
// "ranks 0-1, 4" or "rank 3"
std::string list_of_ranks(const std::vector<int>& ranks);
// "a ranks 0-1, b ranks 2-3"
std::string list_of_nodes(const std::vector<NodePlacement>&);

}  // namespace bv
