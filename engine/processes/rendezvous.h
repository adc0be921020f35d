// How processes that another launcher started come to share memory.
#pragma once
#include <vector>

#include "engine/processes/launch.h"
#include "kernels/comm/socket.h"

namespace bv {

// The environment variable in which our launcher names the inherited memory's file descriptor.
inline constexpr const char* shared_fd_variable = "BAREVISION_SHARED_FD";

// Rank 0 makes the memory (kernels/comm/shared_region.h) and passes it to all others, once all have
// come. Returns its file descriptor, which stays open. Throws UserError where a peer doesn't come
// within `timeout` seconds.
int meet_peers(const World&, double timeout);

// The same on several machines: rank 0 listens at port World::port + 1 of World::host. Returns, to
// rank 0, a connection with each rank in its place; to the others one with rank 0.
std::vector<Socket> meet_over_network(const World&, double timeout);

}  // namespace bv
