// Collectives between the processes of one machine, through memory that they share.
#pragma once
#include <cstddef>
#include <memory>

#include "kernels/backend.h"

namespace bv {

struct SharedMemoryPeers {
  int rank = 0, size = 1;
  int fd = -1;  // of the SharedRegion (not needed for one process); stays the caller's
  size_t bucket_bytes = 4 << 20;
  double timeout = 60;      // seconds that a peer may let the others wait
  bool supervised = false;  // a launcher of ours watches too
};

// To be made and destroyed by the main thread, and before the backend whose streams it runs on. Its
// collectives run one after another in the order in which they are called, on whatever streams.
// Throws std::runtime_error where the peers don't agree.
std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryPeers&);

}  // namespace bv
