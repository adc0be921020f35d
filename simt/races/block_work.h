// Accesses and barriers of the block that ran last, for exercises that require parallel work: an
// exercise's results don't show which threads computed them.
#pragma once
#include <cstddef>
#include <vector>

namespace simt {

struct BlockWork {
  std::vector<size_t> accesses;  // of each thread, to shared and global memory
  size_t barriers = 0;           // of the whole block
};
inline BlockWork last_block_work;  // empty where races aren't watched (watching.h)

}  // namespace simt
