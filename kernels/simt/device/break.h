// To stop a debugger inside one chosen thread of one chosen block:
//   SIMT_BREAK="KERNEL,block x,y,z,thread x,y,z"     KERNEL: a part of its name
// calls simt_break() before the thread begins. While it is set, blocks run one after the other.
#pragma once
#include "kernels/simt/device/launch.h"

extern "C" void simt_break();

namespace simt {

// Throws std::runtime_error where SIMT_BREAK is not of that form.
bool breaks_in(const Launch&);
// Its number in the block; ~0u: none.
unsigned thread_to_break_in(const Launch&, uint3 block);

}  // namespace simt
