// The two compilations of the CPU's kernels. Those of avx512 may only be made where the CPU has
// AVX-512 (F, BW, CD, DQ, VL).
#pragma once
#include <memory>

#include "kernels/kernels.h"

namespace bv::avx2 {
std::unique_ptr<Kernels> make_cpu_kernels();
}
namespace bv::avx512 {
std::unique_ptr<Kernels> make_cpu_kernels();
}
