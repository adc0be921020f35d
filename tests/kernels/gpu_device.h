// The GPU as a device for the kernel tests, in both builds.
#pragma once
#include "tests/kernels/device.h"

namespace bv::cuda_gpu {
test::Device gpu_device(KernelSet = KernelSet::fast);
}
namespace bv::simt_gpu {
test::Device gpu_device(KernelSet = KernelSet::fast);
}
