// A launch as the stand-in sees it.
#pragma once
#include <functional>
#include <string>

#include "simt/device/chip.h"
#include "simt/device/types.h"

namespace simt {

struct Launch {
  std::string name;  // of the kernel
  dim3 grid, block;
  size_t shared_bytes;
  std::function<void()> body;                // runs in each thread; owns the kernel's arguments
  const void* function = nullptr;            // the kernel, if it has a state
  double bytes_read = 0, bytes_written = 0;  // of a library's launch: nothing else is counted
};

// The most shared memory that a launch of this kernel may use: part of the kernel's state, 48 KiB
// until set. A launch is checked when it is made and when it runs, a captured one at each replay.
void set_shared_limit(const void* function, size_t bytes);
void forget_shared_limits();

// Throws std::runtime_error if the chip would refuse the launch, as CUDA does at the call.
void check_limits(const Launch&);

// Runs it on all cores, to its end. Throws std::runtime_error "KERNEL: block (x,y,z): what is
// wrong", with the threads and the source lines. The same launch fails with the same words every
// time.
void run(const Launch&);

}  // namespace simt
