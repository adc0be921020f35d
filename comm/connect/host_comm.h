// The communicator between the ranks' hosts, and how a worker reports an error to its peers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/processes/world.h"
#include "engine/options/options.h"
#include "kernels/backend.h"

namespace bv {

// Over shared memory, from our launcher or rank 0; on several machines over TCP through rank 0, for
// few and small messages (a HostsCommunicator). Fills World::seats. A peer that doesn't come within
// `timeout` seconds: UserError. One that later dies, or is stuck for `timeout`: the reason on
// stderr, then _exit(1). The main thread calls this and destroys the result.
std::unique_ptr<Communicator> connect_hosts(World&, size_t bucket_bytes, double timeout);

// Called by all. Throws UserError on every rank if the config.json of one, or the step it resumes
// from, would differ from rank 0's, naming the first difference: another launcher may start ranks
// with different options, and a folder may change while they look at it.
void require_same_options(Communicator& hosts, const Options& resolved, int64_t resumed_step = 0,
                          const World& = {});

// Ends the process with `exit_code`. Of ranks that are connected only the first to fail prints.
[[noreturn]] void fail_worker(const World&, const std::string& line, int exit_code);

}  // namespace bv
