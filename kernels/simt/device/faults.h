// A crash inside a kernel (a wild pointer, a stack that overflows, a report of a sanitizer) is
// followed by a line that says in which thread of which block of which kernel:
//   simt: KERNEL: block (0,0,0): thread (5,0,0): no memory at 0x10
#pragma once

namespace simt {

// To be called on every host thread that runs blocks; only the first call on it does something.
void explain_faults_on_this_thread();

}  // namespace simt
