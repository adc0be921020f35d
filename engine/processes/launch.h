// Processes: the launcher starts N workers of this same program, supervises them and ends with
// their verdict; a worker finds out who it is and meets its peers.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace bv {

// Who a worker is, from RANK/WORLD_SIZE/LOCAL_RANK (torchrun, our launcher),
// SLURM_PROCID/SLURM_NTASKS/SLURM_LOCALID or OMPI_COMM_WORLD_RANK/_SIZE/_LOCAL_RANK.
struct World {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  bool launched = false;  // by our launcher: a worker even where -n is on the command line
  int shared_fd = -1;     // memory shared with the peers: from our launcher, or set by connecting
  std::string master;     // "addr:port" or a job's id: what peers under another launcher meet by
  std::string host;       // MASTER_ADDR: rank 0's machine, where there are several; or empty
  int port = 29500;       // MASTER_PORT; ours is the next one
  bool several_machines() const { return local_size != size; }
  std::string variables;  // the environment's part in it, for messages: "RANK, WORLD_SIZE ..."
};
// Nothing where no such variables are set. Throws UserError where some are missing or contradict
// each other.
std::optional<World> world_from_environment();

// Starts `nproc` workers of this program (argv as it is; tests start another `program`) and returns
// the exit code to end with: 0 if all end with 0. A worker that ends otherwise ends all: the
// launcher says which rank died first, of what ("rank 1 was killed by SIGKILL"), and passes its
// exit code on (for a user's mistake, whose line a worker has printed, it adds nothing).
// SIGINT/SIGTERM are passed on, and where the workers stop for them (exit code 128 + signal), so
// does the launcher; a second one kills. Workers die with the launcher. Warns where nproc is more
// than the cores. To be called before any thread is started.
int run_launcher(int nproc, const std::vector<std::string>& argv,
                 const std::string& program = "/proc/self/exe");

// In a worker: gives this process its share of the machine's cores (affinity), before any thread is
// started. Returns the number of threads that should compute.
int pin_to_share(const World&);

// Set by SIGINT/SIGTERM in a worker (the number), else 0. A second signal, a second or more after
// the first (both the terminal and the launcher pass one on), ends the process at once.
int stop_signal();
void catch_stop_signals();

// The processes' hosts. On one machine over shared memory: inherited from our launcher, or (another
// launcher) passed by rank 0 over an abstract Unix socket named by World::master. On several
// machines over TCP, by way of rank 0: for few and small things. A peer that doesn't come within
// `timeout` seconds: UserError naming the variables. A peer that dies or is stuck for `timeout`
// later: the reason on stderr, then _exit(1). To be called, and its result destroyed, by the main
// thread.
std::unique_ptr<Communicator> connect_hosts(World&, size_t bucket_bytes, double timeout);

// An error found by a worker: prints the line once over all ranks (the first that comes; before the
// processes under another launcher are connected, each for itself) and ends the process with
// `exit_code`.
[[noreturn]] void fail_worker(const World&, const std::string& line, int exit_code);

}  // namespace bv
