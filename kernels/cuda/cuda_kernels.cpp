#include "kernels/cuda/cuda_kernels.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/cuda/conv_cudnn.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/cuda/matmul.h"

namespace bv::BAREVISION_GPU {

void destroy_cudnn(ConvCudnn* cudnn) { delete cudnn; }
void destroy_matmul(Matmul* matmul) { delete matmul; }

CudaKernels::CudaKernels(cudaStream_t compute, bool cudnn)
    : KernelRows<CudaKernels>(gpu_alignments),
      compute_(compute),
      props_{.arch = compute_capability(),
             .sms = attribute(cudaDevAttrMultiProcessorCount),
             .blocks = attribute(cudaDevAttrMultiProcessorCount),
             .shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)} {
  matmul_.handle = new Matmul;
  if (cudnn) cudnn_.handle = new ConvCudnn;
  constexpr size_t bytes = DeviceProps::counters * sizeof(unsigned);
  check(cudaMalloc(&arrived_.handle, bytes), "cudaMalloc");
  check(cudaMemsetAsync(arrived_.handle, 0, bytes, compute_), "cudaMemsetAsync");
  check(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
  props_.arrived = arrived_.handle;
}
CudaKernels::~CudaKernels() = default;

PlainKernels::PlainKernels(cudaStream_t compute)
    : KernelRows<PlainKernels>(gpu_alignments), compute_(compute) {}

std::unique_ptr<Kernels> make_cuda_kernels(Stream compute, KernelSet set, bool collectives) {
  const int arch = compute_capability();
  if (arch < 75)
    throw std::runtime_error("this GPU has compute capability " + std::to_string(arch / 10) + "." +
                             std::to_string(arch % 10) + "; CUDA 13 needs 7.5 (Turing) or newer");
  if (set == KernelSet::hopper) return make_hopper_kernels(compute, 0, collectives);
  const auto stream = reinterpret_cast<cudaStream_t>(compute);
  if (set == KernelSet::plain) return std::make_unique<PlainKernels>(stream);
  return std::make_unique<CudaKernels>(stream, set == KernelSet::cudnn);
}

}  // namespace bv::BAREVISION_GPU
