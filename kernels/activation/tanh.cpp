// tanh, in place or not:
//   out = tanh(inp),   dinp = dout (1 - out^2)
// Saved for backward: out. Threads share the elements. The C library's tanh, some 30 instructions an
// element: it has a row per image, thousands of elements, and nothing limits it.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {

using simd::for_each;
using simd::vf;

template <>
void CpuKernels::run(const TanhForward& op) {
  const size_t n = size_t(op.shape.rows) * op.shape.C;
  const float* inp = floats(op.inp);
  float* out = floats(op.out);
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < n; ++i) out[i] = __builtin_tanhf(inp[i]);
}

template <>
void CpuKernels::run(const TanhBackward& op) {
  const auto [rows, C] = op.shape;
#pragma omp parallel for schedule(static)
  for (int row = 0; row < rows; ++row) {
    const size_t at = size_t(row) * C;
    for_each(C, [&](int i, auto lanes) {
      const vf out = lanes.load(floats(op.out) + at + i);
      lanes.store(floats(op.dinp) + at + i, lanes.load(floats(op.dout) + at + i) * (1 - out * out));
    });
  }
}

}  // namespace bv::BAREVISION_ISA
