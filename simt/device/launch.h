// A launch on the stand-in.
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
  const void* function = nullptr;            // the kernel, for its shared memory limit
  double bytes_read = 0, bytes_written = 0;  // of a library: counted instead of accesses
  // May begin before the kernel ahead of it has ended (griddepcontrol.wait).
  bool dependent = false;
  // If set: hides or shows the writes of the kernel ahead. The first blocks run one after another,
  // each beginning with these writes hidden.
  std::function<void(bool visible)> earlier_writes{};
};

// The most shared memory that a launch of this kernel may use: part of the kernel's state,
// initially 48 KiB. A launch is checked when it is made and when it runs, a captured one at each
// replay.
void set_shared_limit(const void* function, size_t bytes);
void forget_shared_limits();

// Throws std::runtime_error if the chip would refuse the launch, as CUDA does at the call.
void check_limits(const Launch&);

// Runs the launch to its end, on all cores. Throws std::runtime_error "KERNEL: block (x,y,z): ..."
// with the mistake, the threads and the source lines. The same launch always fails with the same
// message.
void run(const Launch&);

}  // namespace simt
