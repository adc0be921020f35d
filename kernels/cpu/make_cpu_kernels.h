// The two builds of the CPU's kernels. The avx512 kernels may only be created if has_avx512(). Only
// they use has_bf16: without it, they compute in bf16 more slowly.
#pragma once
#include <memory>

#include "kernels/kernels.h"

namespace bv::avx2 {
std::unique_ptr<Kernels> make_cpu_kernels(bool has_bf16);
}
namespace bv::avx512 {
std::unique_ptr<Kernels> make_cpu_kernels(bool has_bf16);
}
