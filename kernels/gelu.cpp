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

template <>
void CpuKernels::run(const BiasGeluForward& op) {
  const float* bias = static_cast<const float*>(op.bias);
#pragma omp parallel for schedule(static)
  for (int row = 0; row < op.shape.rows; ++row) {
    const float* inp = static_cast<const float*>(op.inp) + size_t(row) * op.shape.C;
    float* out = static_cast<float*>(op.out) + size_t(row) * op.shape.C;
    for_each(op.shape.C, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + i) + lanes.load(bias + i);
      lanes.store(out + i, x * simd::normal(x).cdf);
    });
  }
}

template <>
size_t CpuKernels::workspace(const BiasGeluBackward& op) {
  return sizeof(float) * RowGroups{op.shape.rows}.count() * op.shape.C;
}

template <>
void CpuKernels::run(const BiasGeluBackward& op) {
  const RowGroups groups{op.shape.rows};
  const float* bias = static_cast<const float*>(op.bias);
  float* partial = static_cast<float*>(op.workspace);  // [groups, C]
#pragma omp parallel for schedule(static)
  for (int group = 0; group < groups.count(); ++group) {
    float* dbias = partial + size_t(group) * op.shape.C;
    __builtin_memset(dbias, 0, sizeof(float) * op.shape.C);
    for (int row = groups.begin(group); row < groups.begin(group + 1); ++row) {
      const float* inp = static_cast<const float*>(op.inp) + size_t(row) * op.shape.C;
      const float* dout = static_cast<const float*>(op.dout) + size_t(row) * op.shape.C;
      float* dinp = static_cast<float*>(op.dinp) + size_t(row) * op.shape.C;
      for_each(op.shape.C, [&](int i, auto lanes) {
        const vf x = lanes.load(inp + i) + lanes.load(bias + i);
        const simd::Normal normal = simd::normal(x);
        const vf d = lanes.load(dout + i) * simd::fma(x, normal.density, normal.cdf);
        lanes.store(dinp + i, d);
        lanes.store(dbias + i, lanes.load(dbias + i) + d);
      });
    }
  }
  add_groups(op.dbias, partial, groups.count(), op.shape.C, op.shape.C, op.accumulate);
}

}  // namespace bv::BAREVISION_ISA
