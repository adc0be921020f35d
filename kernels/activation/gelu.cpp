// The exact GELU of inp + bias:
//   x = inp + bias,   out = dropout(x Phi(x)),   dinp = dropout(dout) * (Phi(x) + x phi(x)),
//   dbias (+)= sum of dinp
// Saved for backward: inp alone; Phi and phi share one exponential (simd::normal), cheaper to
// recompute than to read. dinp =; dbias = or += per accumulate. Threads divide the rows; the column
// sums go through RowGroups. 8 (backward 12) bytes per element and about 35 vector instructions per
// 16 elements: memory and arithmetic limit it equally. Dropout is a pass over a row in L1.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::vf;

template <class T>
void forward(const BiasGeluForward& op) {
  const auto [rows, C] = op.shape;
  const T* bias = as<T>(op.bias);
#pragma omp parallel for schedule(static)
  for (int row = 0; row < rows; ++row) {
    const T* inp = as<T>(op.inp) + size_t(row) * C;
    T* out = as<T>(op.out) + size_t(row) * C;
    for_each(C, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + i) + lanes.load(bias + i);
      lanes.store(out + i, x * simd::normal(x).cdf);
    });
    if (op.dropout.drop > 0) drop_row(op.dropout, op.params, row, C, out, out);
  }
}

template <class T>
void backward(const BiasGeluBackward& op) {
  const auto [rows, C] = op.shape;
  const RowGroups groups{rows};
  const T* bias = as<T>(op.bias);
  float* partial = floats(op.workspace);  // [groups, C]
  sum_groups(groups, partial, static_cast<size_t>(C), [&op, bias, C = C](int row, float* dbias) {
    const size_t at = size_t(row) * C;
    const T *inp = as<T>(op.inp) + at, *dout = as<T>(op.dout) + at;
    T* dinp = as<T>(op.dinp) + at;
    if (op.dropout.drop > 0) {
      drop_row(op.dropout, op.params, row, C, dinp, dout);
      dout = dinp;
    }
    for_each(C, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + i) + lanes.load(bias + i);
      const simd::Normal normal = simd::normal(x);
      const vf d = lanes.load(dout + i) * simd::fma(x, normal.density, normal.cdf);
      lanes.store(dinp + i, d);
      lanes.store(dbias + i, lanes.load(dbias + i) + d);
    });
  });
  add_groups(op.dbias, partial, groups.count(), C, C, op.accumulate);
}

}  // namespace

template <>
void CpuKernels::run(const BiasGeluForward& op) {
  with_type(op.dtype, [&]<class T>(T) { forward<T>(op); });
}

template <>
size_t CpuKernels::workspace(const BiasGeluBackward& op) {
  return sizeof(float) * RowGroups{op.shape.rows}.count() * op.shape.C;
}

template <>
void CpuKernels::run(const BiasGeluBackward& op) {
  with_type(op.dtype, [&]<class T>(T) { backward<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
