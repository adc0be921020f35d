// After a crash inside a kernel (a wild pointer, a stack overflow, a sanitizer's report), prints a
// line that names the kernel, block and thread:
//   simt: KERNEL: block (0,0,0): thread (5,0,0): no memory at 0x10
#pragma once

namespace simt {

// Called on every host thread that runs blocks; only the first call per thread has an effect.
void explain_faults_on_this_thread();

}  // namespace simt
