// Processes that talk through shared memory.
#pragma once
#include <memory>

#include "comm/local/shared_memory_communicator.h"
#include "comm/local/shared_region.h"
#include "tests/comm/processes.h"

namespace bv::test {

// Runs body(communicator) in `size` processes. timeout: `hang` if no wait should reach it.
template <class Body>
Ranks start_ranks(const SharedRegion& region, int size, size_t bucket_bytes, double timeout,
                  Body body) {
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<Child>([&, rank] {
      const auto peers = make_shared_memory_communicator({.rank = rank,
                                                          .size = size,
                                                          .fd = region.fd(),
                                                          .bucket_bytes = bucket_bytes,
                                                          .timeout = timeout});
      return body(*peers);
    }));
  return ranks;
}
template <class Body>
Ranks start_ranks(int size, size_t bucket_bytes, double timeout, Body body) {
  return start_ranks(SharedRegion::create(size), size, bucket_bytes, timeout, body);
}

}  // namespace bv::test
