// The cpu device: kernels for the CPU's instruction set, memory, streams.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace bv {

// The null stream's kernels run on `threads` threads. `overlap`: each communication stream has its
// own thread; otherwise its work runs at once. In the environment, BAREVISION_ISA=avx2 disables
// AVX-512, and BAREVISION_BF16=emulated allows bf16 on AVX-512 CPUs without instructions for it;
// throws std::invalid_argument on an unknown value.
std::unique_ptr<Backend> make_cpu_backend(int threads, bool overlap);

}  // namespace bv
