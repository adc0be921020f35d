// Stops a debugger inside one chosen thread of one chosen block:
//   SIMT_BREAK="KERNEL,block x,y,z,thread x,y,z"     KERNEL: part of the kernel's name
// calls simt_break() before the thread begins. While SIMT_BREAK is set, the kernel's blocks run one
// after another. If the thread never began, the process prints that at exit, and the most similar
// launches.
#pragma once
#include "simt/device/launch.h"

extern "C" void simt_break();

namespace simt {

// Whether SIMT_BREAK names the launch's kernel. Called once for each launch, which it records.
// Throws std::runtime_error if SIMT_BREAK is malformed.
bool breaks_in(const Launch&);
// The number of the thread in this block that SIMT_BREAK names; ~0u if it names none.
unsigned thread_to_break_in(const Launch&, uint3 block);

}  // namespace simt
