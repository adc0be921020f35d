// Connects the ranks' hosts, and reports a worker's error to its peers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/processes/world.h"

namespace bv {

// Connects over shared memory, which our launcher or rank 0 has created; if there are several
// machines, over TCP through rank 0, which suits only a few small messages (a HostsCommunicator).
// Fills World::seats. Throws UserError if a peer doesn't connect within `timeout` seconds. If one
// later dies, or is stuck for `timeout`, prints the reason to stderr and ends the process with
// _exit. The main thread must call this and destroy the result.
std::unique_ptr<Communicator> connect_hosts(World&, size_t bucket_bytes, double timeout);

// Ends the process with `exit_code`. Among connected ranks, only the first to fail prints its line.
[[noreturn]] void fail_worker(const World&, const std::string& line, int exit_code);

}  // namespace bv
