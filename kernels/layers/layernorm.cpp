// Residual add and layer normalisation over the last dimension, row by row:
//   sum = inp + drop_path(dropout(residual)),   out = (sum - mean) * rstd * weight + bias
//   dinp = dsum + rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),   g = dout * weight,
//   xhat = (sum - mean) * rstd;   dweight (+)= sum of dout * xhat,   dbias (+)= sum of dout
//   dresidual = drop_path(dropout(dinp))
// Saved for backward: sum, mean, rstd. dinp =; dweight, dbias = or += per accumulate. A row is read
// from memory once, then from L1 for each of three passes (mean, variance, result). The variance is
// computed from the differences from the mean, so that nothing cancels. Threads divide the rows;
// backward's column sums go through RowGroups. 8 (backward 14) flops per element for 8 to 16 bytes:
// memory is the limit. Dropout is a pass over a row in L1.
#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::set;
using simd::vf;

// The factor by which drop path multiplies a row of the residual; 0: the row is dropped.
template <class Op>
float keep_factor(const Op& op, int row) {
  const Drop& path = op.drop_path;
  if (path.drop == 0) return 1;
  const uint32_t image = op.params->position + static_cast<uint32_t>(row / path.image_rows);
  const Philox4 words = philox(op.params->seed, 0, image, op.params->epoch, path.layer);
  return bv::uniform(words.at[0]) >= path.drop ? 1 / (1 - path.drop) : 0;
}

template <class T>
void forward_row(const LayerNormForward& op, int row) {
  const int C = op.shape.C;
  const size_t at = size_t(row) * C;
  const T* inp = as<T>(op.inp) + at;
  const T* residual = op.residual ? as<T>(op.residual) + at : nullptr;
  T* sum = residual ? as<T>(op.sum) + at : nullptr;
  const float factor = residual ? keep_factor(op, row) : 1;
  if (op.dropout.drop > 0) {
    drop_row(op.dropout, op.params, row, C, sum, residual);
    residual = sum;
  }
  vf total{};
  for_each(C, [&](int i, auto lanes) {
    vf v = lanes.load(inp + i);
    if (residual) {
      if (factor > 0) v += lanes.load(residual + i) * factor;
      v = simd::rounded(T{}, v);  // as backward reads it
      lanes.store(sum + i, v);
    }
    total += v;
  });
  const T* x = residual ? sum : inp;
  const float mean = simd::reduce_sum(total) / C;

  vf squares{};
  for_each(C, [&](int i, auto lanes) {
    const vf d = lanes.keep(lanes.load(x + i) - mean);
    squares += d * d;
  });
  const float rstd = 1.0f / __builtin_sqrtf(simd::reduce_sum(squares) / C + op.eps);

  T* out = as<T>(op.out) + at;
  for_each(C, [&](int i, auto lanes) {
    const vf xhat = (lanes.load(x + i) - mean) * rstd;
    lanes.store(out + i, simd::fma(xhat, lanes.load(op.weight + i), lanes.load(op.bias + i)));
  });
  op.mean[row] = mean;
  op.rstd[row] = rstd;
}

// Writes a row of dinp and adds the row's terms to the partial dweight and dbias.
template <class T>
void backward_row(const LayerNormBackward& op, int row, float* dweight, float* dbias) {
  const int C = op.shape.C;
  const size_t at = size_t(row) * C;
  const T *dout = as<T>(op.dout) + at, *sum = as<T>(op.sum) + at;
  const float mean = op.mean[row], rstd = op.rstd[row];
  vf g_total{}, g_xhat_total{};
  for_each(C, [&](int i, auto lanes) {
    const vf d = lanes.load(dout + i), xhat = (lanes.load(sum + i) - mean) * rstd;
    const vf g = d * lanes.load(op.weight + i);
    lanes.store(dweight + i, simd::fma(d, xhat, lanes.load(dweight + i)));
    lanes.store(dbias + i, lanes.load(dbias + i) + d);
    g_total += g;
    g_xhat_total = simd::fma(g, xhat, g_xhat_total);
  });
  const vf g_mean = set(simd::reduce_sum(g_total) / C);
  const vf g_xhat_mean = set(simd::reduce_sum(g_xhat_total) / C);

  const T* dsum = op.dsum ? as<T>(op.dsum) + at : nullptr;
  T* dinp = as<T>(op.dinp) + at;
  T* dresidual = op.dresidual ? as<T>(op.dresidual) + at : nullptr;
  const float factor = keep_factor(op, row);
  for_each(C, [&](int i, auto lanes) {
    const vf xhat = (lanes.load(sum + i) - mean) * rstd;
    const vf g = lanes.load(dout + i) * lanes.load(op.weight + i);
    vf d = (g - g_mean - xhat * g_xhat_mean) * rstd;
    if (dsum) d += lanes.load(dsum + i);
    lanes.store(dinp + i, d);
    if (dresidual) lanes.store(dresidual + i, factor > 0 ? d * factor : vf{});
  });
  if (op.dropout.drop > 0) drop_row(op.dropout, op.params, row, C, dresidual, dresidual);
}

template <class T>
void backward(const LayerNormBackward& op) {
  const auto [rows, C] = op.shape;
  const RowGroups groups{rows};
  float* partial = floats(op.workspace);  // [groups, 2, C]
  const size_t stride = 2 * size_t(C);
  sum_groups(groups, partial, stride,
             [&op](int row, float* sums) { backward_row<T>(op, row, sums, sums + op.shape.C); });
  add_groups(op.dweight, partial, groups.count(), stride, C, op.accumulate);
  add_groups(op.dbias, partial + C, groups.count(), stride, C, op.accumulate);
}

}  // namespace

template <>
void CpuKernels::run(const LayerNormForward& op) {
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for schedule(static)
    for (int row = 0; row < op.shape.rows; ++row) forward_row<T>(op, row);
  });
}

template <>
size_t CpuKernels::workspace(const LayerNormBackward& op) {
  return sizeof(float) * 2 * RowGroups{op.shape.rows}.count() * op.shape.C;
}

template <>
void CpuKernels::run(const LayerNormBackward& op) {
  with_type(op.dtype, [&]<class T>(T) { backward<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
