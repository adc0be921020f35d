// A kernel that spins for ever is ended by an error that names it: once a block has run for
// SIMT_TIMEOUT seconds of processor time (60 without it), the process aborts with
//   simt: KERNEL: block (0,0,0): thread (0,0,0): still running after 60 s (SIMT_TIMEOUT)
// Processor time: neither a debugger nor a busy machine is mistaken for it.
#pragma once
#include "kernels/simt/device/block.h"

namespace simt {

// While it lives, the blocks that `block` runs on the calling host thread are watched.
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
