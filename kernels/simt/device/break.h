// To stop a debugger inside one chosen thread of one chosen block:
//   SIMT_BREAK="KERNEL,block x,y,z,thread x,y,z"     KERNEL: part of its name
// calls simt_break() before the thread begins. While it is set, blocks run one after another.
#pragma once
#include "kernels/simt/device/launch.h"

extern "C" void simt_break();

namespace simt {

// Throws std::runtime_error if SIMT_BREAK does not have that form.
bool breaks_in(const Launch&);
// The thread's number in the block; ~0u if there is none.
unsigned thread_to_break_in(const Launch&, uint3 block);

}  // namespace simt
