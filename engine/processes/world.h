// Who this process is among its peers, according to the environment set by its launcher: ours,
// torchrun, Slurm or Open MPI.
#pragma once
#include <optional>
#include <string>

namespace bv {

struct World {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  bool launched = false;  // by our launcher: a worker even if -n is on the command line
  int shared_fd = -1;     // memory shared with the peers: from our launcher, or set by connecting
  std::string master;     // "addr:port" or a job's id: the meeting point under another launcher
  std::string host;       // MASTER_ADDR: rank 0's machine if there are several, or empty
  int port = 29500;       // MASTER_PORT; ours is the next one
  std::string secret;     // BAREVISION_SECRET: what ranks that meet must know, or empty
  bool several_machines() const { return local_size != size; }
  std::string variables;  // the variables this was read from, for messages: "RANK, WORLD_SIZE ..."
};

// The environment variable in which our launcher passes the inherited memory's file descriptor.
inline constexpr const char* shared_fd_variable = "BAREVISION_SHARED_FD";

// Whether our own launcher has started this process.
bool is_launched_worker();

// Throws UserError where mpirun, srun or torchrun have started this process as one of several: each
// would start a run of its own.
void refuse_other_launchers();

// Nothing if no such variables are set. Throws UserError if they are incomplete or contradictory.
std::optional<World> world_from_environment();

}  // namespace bv
