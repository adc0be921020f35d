// A linear layer and a layer norm as two operations (kernels.h). oneDNN's product is stored in out,
// or in dinp, and layernorm.cpp reads it from there. The product's 2 M N K flops are the limit.
#include "kernels/cpu/cpu_kernels.h"

namespace bv::BAREVISION_ISA {

template <>
size_t CpuKernels::workspace(const LinearNormForward& op) {
  return workspace(op.product());
}

template <>
void CpuKernels::run(const LinearNormForward& op) {
  run(op.product());
  run(op.norm());
}

template <>
size_t CpuKernels::workspace(const NormLinearBackwardInput& op) {
  const size_t product = workspace(op.product()), norm = workspace(op.norm());
  return product > norm ? product : norm;
}

template <>
void CpuKernels::run(const NormLinearBackwardInput& op) {
  run(op.product());
  run(op.norm());
}

}  // namespace bv::BAREVISION_ISA
