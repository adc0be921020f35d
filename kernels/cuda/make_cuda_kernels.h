// The GPU's kernels in two builds, for the current CUDA device and for its stand-in. The null
// stream means `compute`. collectives: they run beside the kernels. Throws std::runtime_error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace bv::cuda_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, KernelSet = KernelSet::fast,
                                           bool collectives = false);
// The same for KernelSet::hopper. Unless `sms` is 0, work is divided as if the device had that many
// multiprocessors.
std::unique_ptr<Kernels> make_hopper_kernels(Stream compute, int sms = 0, bool collectives = false);
// The names of the operations that have kernels made for sm_90, for some sizes and dtypes.
std::vector<std::string> hopper_operations();
}  // namespace bv::cuda_gpu
namespace bv::simt_gpu {
std::unique_ptr<Kernels> make_cuda_kernels(Stream compute = nullptr, KernelSet = KernelSet::fast,
                                           bool collectives = false);
std::unique_ptr<Kernels> make_hopper_kernels(Stream compute, int sms = 0, bool collectives = false);
std::vector<std::string> hopper_operations();
}  // namespace bv::simt_gpu
