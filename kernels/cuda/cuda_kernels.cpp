#include "kernels/cuda/cuda_kernels.h"

#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/cuda/matmul.h"

namespace bv::BAREVISION_GPU {
namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

CudaKernels::CudaKernels()
    : chip_{.arch = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                    attribute(cudaDevAttrComputeCapabilityMinor),
            .multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
            .shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)},
      matmul_(std::make_unique<Matmul>()) {
  if (chip_.arch < 75)
    throw std::runtime_error("this GPU has compute capability " + std::to_string(chip_.arch / 10) +
                             "." + std::to_string(chip_.arch % 10) +
                             ", but CUDA 13 supports 7.5 (Turing) and newer");
}
CudaKernels::~CudaKernels() = default;

std::unique_ptr<Kernels> make_cuda_kernels() { return std::make_unique<CudaKernels>(); }

}  // namespace bv::BAREVISION_GPU
