// The communicator between the ranks' hosts, and how a worker reports an error to its peers.
#pragma once
#include <memory>
#include <string>

#include "engine/options/options.h"
#include "engine/processes/world.h"
#include "kernels/backend.h"

namespace bv {

// On one machine over shared memory: inherited from our launcher, or (another launcher) passed by
// rank 0 over an abstract Unix socket named after World::master. On several machines over TCP
// through rank 0: for few and small messages. A peer that doesn't come within `timeout` seconds:
// UserError naming the variables. A peer that later dies, or is stuck for `timeout`: the reason on
// stderr, then _exit(1). The main thread calls this and destroys the result.
std::unique_ptr<Communicator> connect_hosts(World&, size_t bucket_bytes, double timeout);

// Throws UserError on a rank whose options, as written to config.json, differ from rank 0's, naming
// the first that differs: another launcher doesn't ensure that they are the same. Every rank calls it.
void require_same_options(Communicator& hosts, const Options& resolved);

// Prints a worker's error once over all ranks (the first to come; under another launcher, until the
// processes are connected, each rank prints its own) and ends the process with `exit_code`.
[[noreturn]] void fail_worker(const World&, const std::string& line, int exit_code);

}  // namespace bv
