// The GPU as a device of the table of tests, in its two builds.
#pragma once
#include "tests/kernels/device.h"

namespace bv::cuda_gpu {
test::Device gpu_device(KernelSet = KernelSet::fast);
}
namespace bv::simt_gpu {
test::Device gpu_device(KernelSet = KernelSet::fast);
}
