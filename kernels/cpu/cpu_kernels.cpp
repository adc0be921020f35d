// Makes the CPU's table of operations, once for each instruction set (kernels/cpu/cpu_kernels.h).
#include "kernels/cpu/cpu_kernels.h"

#include "kernels/cpu/conv_onednn.h"
#include "kernels/cpu/make_cpu_kernels.h"
#include "kernels/cpu/matmul_onednn.h"

namespace bv::BAREVISION_ISA {

CpuKernels::CpuKernels(bool has_bf16)
    : KernelRows<CpuKernels>({.only_fp32 = simd::width < 16}),
      has_bf16_(has_bf16),
      matmul_(MatmulOneDnn::make()),
      conv_(ConvOneDnn::make()) {}
CpuKernels::~CpuKernels() = default;

std::unique_ptr<Kernels> make_cpu_kernels(bool has_bf16) {
  return std::make_unique<CpuKernels>(has_bf16);
}

}  // namespace bv::BAREVISION_ISA
