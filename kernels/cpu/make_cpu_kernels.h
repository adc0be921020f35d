// The two compilations of the CPU's kernels. Those of avx512 may only be made if has_avx512().
#pragma once
#include <memory>

#include "kernels/kernels.h"

namespace bv::avx2 {
std::unique_ptr<Kernels> make_cpu_kernels();
}
namespace bv::avx512 {
std::unique_ptr<Kernels> make_cpu_kernels();
}
