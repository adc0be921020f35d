// How processes that another launcher started come to share memory.
#pragma once
#include "engine/launch.h"

namespace bv {

// The environment variable in which our launcher names the inherited memory's file descriptor.
inline constexpr const char* shared_fd_variable = "BAREVISION_SHARED_FD";

// Rank 0 makes the memory (kernels/cpu/shared_region.h) and passes it to all others, once all have
// come. Returns its file descriptor, which stays open. Throws UserError where a peer doesn't come
// within `timeout` seconds.
int meet_peers(const World&, double timeout);

}  // namespace bv
