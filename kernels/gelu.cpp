// The exact GELU of inp + bias:
//   x = inp + bias,   out = x Phi(x),   dinp = dout * (Phi(x) + x phi(x)),   dbias (+)= sum of dinp
// Saved for backward: inp alone; Phi and phi share one exponential (simd::normal) and are cheaper
// computed again than read. Threads share out the rows; the column sums go through RowGroups.
// 8 (backward 12) bytes an element and about 35 vector instructions for 16 of them: memory and
// arithmetic limit it alike.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {

using simd::for_each;
using simd::vf;

void CpuKernels::run(const BiasGeluForward& op, Stream) {
  require(op.rows > 0 && op.C > 0, "BiasGeluForward", "rows and C must be positive");
  require(op.dtype == DType::fp32, "BiasGeluForward", "dtype must be fp32 on this device");
  require(op.out && op.inp && op.bias, "BiasGeluForward", "out, inp and bias must not be null");
  const float* bias = static_cast<const float*>(op.bias);
#pragma omp parallel for schedule(static)
  for (int row = 0; row < op.rows; ++row) {
    const float* inp = static_cast<const float*>(op.inp) + size_t(row) * op.C;
    float* out = static_cast<float*>(op.out) + size_t(row) * op.C;
    for_each(op.C, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + i) + lanes.load(bias + i);
      lanes.store(out + i, x * simd::normal(x).cdf);
    });
  }
}

size_t CpuKernels::workspace_bytes(const BiasGeluBackward& op) {
  return sizeof(float) * RowGroups{op.rows}.count() * op.C;
}

void CpuKernels::run(const BiasGeluBackward& op, Stream) {
  require(op.rows > 0 && op.C > 0, "BiasGeluBackward", "rows and C must be positive");
  require(op.dtype == DType::fp32, "BiasGeluBackward", "dtype must be fp32 on this device");
  require(op.dinp && op.dbias && op.workspace && op.dout && op.inp && op.bias, "BiasGeluBackward",
          "dinp, dbias, workspace, dout, inp and bias must not be null");
  const RowGroups groups{op.rows};
  const float* bias = static_cast<const float*>(op.bias);
  float* partial = static_cast<float*>(op.workspace);  // [groups, C]
#pragma omp parallel for schedule(static)
  for (int group = 0; group < groups.count(); ++group) {
    float* dbias = partial + size_t(group) * op.C;
    __builtin_memset(dbias, 0, sizeof(float) * op.C);
    for (int row = groups.begin(group); row < groups.begin(group + 1); ++row) {
      const float* inp = static_cast<const float*>(op.inp) + size_t(row) * op.C;
      const float* dout = static_cast<const float*>(op.dout) + size_t(row) * op.C;
      float* dinp = static_cast<float*>(op.dinp) + size_t(row) * op.C;
      for_each(op.C, [&](int i, auto lanes) {
        const vf x = lanes.load(inp + i) + lanes.load(bias + i);
        const simd::Normal normal = simd::normal(x);
        const vf d = lanes.load(dout + i) * simd::fma(x, normal.density, normal.cdf);
        lanes.store(dinp + i, d);
        lanes.store(dbias + i, lanes.load(dbias + i) + d);
      });
    }
  }
  add_groups(op.dbias, partial, groups.count(), op.C, op.C, op.accumulate);
}

}  // namespace bv::BAREVISION_ISA
