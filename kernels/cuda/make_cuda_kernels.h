// The two builds of the GPU's kernels: cuda_gpu for the current CUDA device, simt_gpu for its
// stand-in, which take `compute` for the stream null, if it is given. cudnn: convolutions by cuDNN.
// Either throws std::runtime_error where there is no such device, or no cuDNN.
#pragma once
#include <memory>

#include "kernels/kernels.h"

namespace bv::cuda_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, bool cudnn = false);
}
namespace bv::simt_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, bool cudnn = false);
}
