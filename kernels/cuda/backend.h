// The GPU as a backend, in two builds: cuda_gpu for a CUDA device, simt_gpu for its stand-in.
#pragma once
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace bv {

struct GpuOptions {
  int device = 0;
  bool graphs = true;  // false: kernels are launched one by one
  KernelSet kernels = KernelSet::fast;
  bool collectives = false;  // run beside the kernels
};

// All that KernelSet::hopper needs.
struct HopperSupport {
  int arch;                // the GPU's: 90
  bool compiled;           // this program has code for sm_90
  bool makes_tensor_maps;  // the driver has cuTensorMapEncodeTiled
};

}  // namespace bv

namespace bv::cuda_gpu {
// The number of GPUs visible to this process. If 0, *why_none, unless null, is set to the reason.
int device_count(std::string* why_none);
bool has_cudnn();      // whether cuDNN is built in
bool has_sm90_code();  // whether code for sm_90 is built in; it is compiled as sm_90a
HopperSupport hopper_support(int device);
// Throws std::runtime_error if the device can't be used.
std::unique_ptr<Backend> make_backend(const GpuOptions&);
}  // namespace bv::cuda_gpu

namespace bv::simt_gpu {
int device_count(std::string* why_none);
bool has_cudnn();
bool has_sm90_code();
HopperSupport hopper_support(int device);
std::unique_ptr<Backend> make_backend(const GpuOptions&);
}  // namespace bv::simt_gpu
