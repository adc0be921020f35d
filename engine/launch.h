// Processes: the launcher starts N workers of this same program, supervises them and ends with
// their verdict; a worker finds out who it is and meets its peers.
#pragma once
#include <functional>
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
  bool launched = false;  // by our launcher: memory shared with the peers is inherited
  std::string master;     // "addr:port" or a job's id: what peers under another launcher meet by
};
// Nothing where no such variables are set. Throws UserError where they contradict each other.
std::optional<World> world_from_environment();

// Starts `nproc` workers of this program (argv as it is) and returns the exit code to end with:
// 0 if all end with 0. A worker that ends otherwise ends all: the launcher says which rank died
// first, of what
// ("rank 1 was killed by SIGKILL"), and passes its exit code on (2 for a user's mistake, whose line
// rank 0, or whoever found it, has printed once). SIGINT/SIGTERM are passed on; a second one kills.
// Workers die with the launcher. No argument about cores: warns where nproc is more than the cores.
int run_launcher(int nproc, size_t shared_bytes, const std::vector<std::string>& argv);

// In a worker: gives this process its share of the machine's cores (affinity), before any thread is
// started. Returns the number of cores it may use.
int pin_to_share(const World&);

// Set by SIGINT/SIGTERM in a worker (the number), else 0. A second signal ends the process at once.
int stop_signal();
void catch_stop_signals();

// The processes of one machine over shared memory: inherited from our launcher, or (another
// launcher) passed by rank 0 over an abstract Unix socket named by World::master. A peer that
// doesn't come within `timeout` seconds: UserError naming the variables. A peer that dies or is
// stuck for `timeout` later: the reason on stderr, then _exit(1).
std::unique_ptr<Communicator> connect_shared_memory(const World&, size_t bucket_bytes,
                                                    double timeout);

// A user's mistake found by a worker: prints the line once over all ranks (the first that comes)
// and ends the process with code 2.
[[noreturn]] void fail_worker(const World&, const std::string& line, int exit_code);

}  // namespace bv
