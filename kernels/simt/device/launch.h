// A launch as the stand-in sees it.
#pragma once
#include <functional>
#include <string>

#include "kernels/simt/device/chip.h"
#include "kernels/simt/include/types.h"

namespace simt {

struct Launch {
  std::string name;  // of the kernel
  dim3 grid, block;
  size_t shared_bytes;
  std::function<void()> body;                  // runs in each thread; owns the kernel's arguments
  size_t shared_limit = shared_bytes_unasked;  // as raised by cudaFuncSetAttribute
};

// Throws std::runtime_error if the chip would refuse the launch, as CUDA does at the call.
void check_limits(const Launch&);

// Runs it on all cores, to its end. Throws std::runtime_error "KERNEL: block (x,y,z): what is
// wrong", with the threads and the source lines. The same launch fails with the same words every
// time.
void run(const Launch&);

}  // namespace simt
