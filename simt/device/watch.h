// Ends a kernel that spins forever, with a line that names it: once a block has run for
// SIMT_TIMEOUT seconds of processor time (60 by default), the process aborts with
//   simt: KERNEL: block (0,0,0): thread (0,0,0): still running after 60 s of processor time
//     (SIMT_TIMEOUT)
// Processor time, so that neither a debugger nor a busy machine triggers it.
#pragma once
#include <string>
#include <vector>

#include "simt/device/block.h"

namespace simt {

// The line "my.cu:4: " of a stack's innermost function that is not the stand-in's: in make try.
inline std::string (*line_of)(const std::vector<void*>& stack) = nullptr;

// During its lifetime, the blocks that `block` runs on the calling host thread are watched.
class Watched {
 public:
  explicit Watched(const Block& block);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  const Block& block_;
};

}  // namespace simt
