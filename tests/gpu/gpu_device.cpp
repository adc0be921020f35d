// Compiled twice, like kernels/cuda/*.cpp.
#include "tests/kernels/gpu_device.h"

#include <string_view>

#include "kernels/cuda/check.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/devices/devices.h"

#define TO_STRING(x) #x
#define NAME_OF(x) TO_STRING(x)

namespace bv::BAREVISION_GPU {
namespace {

void* allocate(size_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, bytes), "cudaMalloc");
  return p;
}

void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  check(cudaMemcpyAsync(to, from, bytes, kind, nullptr), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

constexpr bool simt = std::string_view(NAME_OF(BAREVISION_GPU)) == "simt_gpu";

std::string why_unavailable(KernelSet set) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(error);
  if (set == KernelSet::hopper && !simt) return why_no_hopper(DeviceKind::cuda, device);
  return "";
}

// A failed kernel leaves an error that only a reset clears; otherwise all later tests would fail.
std::unique_ptr<Kernels> make_kernels(KernelSet set) {
  if (cudaPeekAtLastError() != cudaSuccess) check(cudaDeviceReset(), "cudaDeviceReset");
  // Few multiprocessors, as on the stand-in: a block computes several tiles even for small shapes.
  if (set == KernelSet::hopper) return make_hopper_kernels(nullptr, 3);
  return make_cuda_kernels(nullptr, set);
}

}  // namespace

test::Device gpu_device(KernelSet set) {
  const bool plain = set == KernelSet::plain, hopper = set == KernelSet::hopper;
  test::Device device{
      .name = std::string(simt ? "simt" : "cuda") + (plain    ? "_plain"
                                                     : hopper ? "_hopper"
                                                              : ""),
      .unavailable = why_unavailable(set),
      .dtypes = {DType::fp32, DType::fp16, DType::bf16},
      .make_kernels = [set] { return make_kernels(set); },
      .allocate = allocate,
      .release = [](void* p) { cudaFree(p); },  // fails after an error
      .upload = [](void* to, const void* from,
                   size_t bytes) { copy(to, from, bytes, cudaMemcpyHostToDevice); },
      .download = [](void* to, const void* from,
                     size_t bytes) { copy(to, from, bytes, cudaMemcpyDeviceToHost); },
      .plain = plain};
  if (hopper) device.operations = hopper_operations();
  if (hopper && simt) device.chip = "sm_90";
  return device;
}

}  // namespace bv::BAREVISION_GPU
