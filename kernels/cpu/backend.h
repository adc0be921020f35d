// The cpu device: kernels for the CPU's instruction set, memory, streams.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace bv {

// `threads` run the kernels of the null stream. `overlap`: each communication stream has a
// thread of its own, else their work runs at once. BAREVISION_ISA=avx2 in the environment leaves
// AVX-512 unused, BAREVISION_BF16=emulated has bf16 where the CPU has AVX-512 without instructions
// for it; throws std::invalid_argument on an unknown value.
std::unique_ptr<Backend> make_cpu_backend(int threads, bool overlap);

}  // namespace bv
