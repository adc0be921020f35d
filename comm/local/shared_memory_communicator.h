// Collectives between the processes of one machine, through shared memory.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/local/run_watch.h"

namespace bv {

struct SharedMemoryPeers {
  int rank = 0, size = 1;
  int fd = -1;  // of the SharedRegion (unused for one process); the caller keeps it
  size_t bucket_bytes = 4 << 20;
  double timeout = 60;      // seconds a peer may keep the others waiting
  bool supervised = false;  // our launcher watches too
  RunWatch* run = nullptr;  // as in RankPlace, for the ranks of one of several machines
  std::vector<int> ranks = {};
};

// Made and destroyed by the main thread; destroyed before the backend whose streams it uses. Its
// collectives run in call order on any streams, concurrently with those of its groups. A send
// doesn't wait for its receiver while at most 128 KiB are in flight. Throws std::runtime_error if
// the peers have different bucket_bytes.
std::unique_ptr<Communicator> make_shared_memory_communicator(const SharedMemoryPeers&);

}  // namespace bv
