// The GPU's kernels in two builds, for the current CUDA device and for its stand-in. The null
// stream means `compute`. Throws std::runtime_error.
#pragma once
#include <memory>

#include "kernels/kernels.h"

namespace bv::cuda_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, KernelSet = KernelSet::fast);
}
namespace bv::simt_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, KernelSet = KernelSet::fast);
}
