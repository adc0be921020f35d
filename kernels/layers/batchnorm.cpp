// Batch normalisation over the rows of [rows, C], with ReLU and the residual add:
//   y = (inp - mean) * rstd * weight + bias (+ residual),   out = relu ? max(y, 0) : y
//   g = dout where y > 0, else 0 (without relu: dout);   xhat = (inp - mean) * rstd
//   sums = (sum of g, sum of g * xhat);   dbias, dweight (+)= sums
//   dinp = weight * rstd * (g - sums[0] / n - xhat * sums[1] / n)
// Saved for backward: inp, mean, rstd, and if y can't be recomputed from inp, one bit per element:
// whether out > 0. dbias and dweight are = or += by accumulate, everything else =. Threads share
// the rows, and each walks down its rows in strips of columns, with their scales in a table.
// Backward's sums go through RowGroups, so they don't depend on the number of threads.
// Memory is the limit: each element is read once and written once.
#include <omp.h>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::set;
using simd::vf;

// Calls each(first, n, begin, end) on all threads: columns first .. first + n, a thread's share of
// the rows.
constexpr int strip = 1024;
template <class Each>
void for_strips(const RowsShape& shape, Each each) {
  const auto [rows, C] = shape;
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const auto begin = static_cast<int>(rows * thread / threads),
               end = static_cast<int>(rows * (thread + 1) / threads);
    for (int first = 0; first < C && begin < end; first += strip)
      each(first, C - first < strip ? C - first : strip, begin, end);
  }
}

// Byte of BatchNormForward's `relu_mask` with the first bits of the vector that begins at `column`.
size_t relu_mask_byte(const RowsShape& shape, int row, int column) {
  return (size_t(column / 64) * shape.rows + row) * 8 + column % 64 / 8;
}

// y before the residual, scale = rstd * weight; backward recomputes its sign.
vf normalised(vf x, vf mean, vf scale, vf bias) { return simd::fma(x - mean, scale, bias); }

// Forward and evaluation. rstd(i, lanes): the rstd of columns i ...
template <class T, class Op, class Rstd>
void normalise(const Op& op, const float* mean, Rstd rstd) {
  const int C = op.shape.C;
  const T *inp = as<T>(op.inp), *residual = as<T>(op.residual);
  T* out = as<T>(op.out);
  for_strips(op.shape, [&](int first, int n, int begin, int end) {
    alignas(64) float scale[strip];
    for_each(n, [&](int i, auto lanes) {
      lanes.store(scale + i, rstd(first + i, lanes) * lanes.load(op.weight + first + i));
    });
    for (int row = begin; row < end; ++row) {
      const size_t at = size_t(row) * C + first;
      for_each(n, [&](int i, auto lanes) {
        vf y = normalised(lanes.load(inp + at + i), lanes.load(mean + first + i),
                          lanes.load(scale + i), lanes.load(op.bias + first + i));
        if (residual) y += lanes.load(residual + at + i);
        if (op.relu) y = simd::max(vf{}, y);  // a NaN stays one
        lanes.store(out + at + i, y);
        if constexpr (requires { op.relu_mask; })
          if (op.relu_mask) {
            const simd::bits bits = simd::to_bits(simd::rounded(T{}, y) > 0.0f);
            char* to = reinterpret_cast<char*>(op.relu_mask);
            __builtin_memcpy(to + relu_mask_byte(op.shape, row, first + i), &bits, sizeof bits);
          }
      });
    }
  });
}

// Mean and rstd over all parts, and the running statistics.
void merge_moments(const BatchNormForward& op, int c) {
  const size_t C = op.shape.C;
  float mean = 0, variance = 0;
  for (int p = 0; p < op.parts; ++p) mean += op.moments[2 * p * C + c];
  mean /= float(op.parts);
  for (int p = 0; p < op.parts; ++p) {
    const float difference = op.moments[2 * p * C + c] - mean;
    variance += op.moments[(2 * p + 1) * C + c] + difference * difference;
  }
  variance /= float(op.parts);
  op.mean[c] = mean;
  op.rstd[c] = 1.0f / __builtin_sqrtf(variance + op.eps);
  if (!op.running_mean || !__builtin_isfinite(mean) || !__builtin_isfinite(variance)) return;
  const double n = double(op.shape.rows) * op.parts;
  const float unbiased = n > 1 ? variance * float(n / (n - 1)) : variance;
  op.running_mean[c] += op.momentum * (mean - op.running_mean[c]);
  op.running_var[c] += op.momentum * (unbiased - op.running_var[c]);
}

// One row of backward's first pass, added to the partial sums of g and of g * (inp - mean).
template <class T>
void add_row(const BatchNormBackwardSums& op, int row, float* g_sum, float* g_d_sum) {
  const size_t at = size_t(row) * op.shape.C;
  const T *dout = as<T>(op.dout) + at, *inp = as<T>(op.inp) + at;
  T* g = op.g ? as<T>(op.g) + at : nullptr;
  for_each(op.shape.C, [&](int i, auto lanes) {
    vf d = lanes.load(dout + i);
    const vf x = lanes.load(inp + i), mean = lanes.load(op.mean + i);
    if (op.relu && op.relu_mask) {
      simd::bits bits;
      const char* from = reinterpret_cast<const char*>(op.relu_mask);
      __builtin_memcpy(&bits, from + relu_mask_byte(op.shape, row, i), sizeof bits);
      d = simd::select(simd::to_mask(bits), d, vf{});
    } else if (op.relu) {
      const vf y = normalised(x, mean, lanes.load(op.rstd + i) * lanes.load(op.weight + i),
                              lanes.load(op.bias + i));
      d = simd::select(y > 0.0f, d, vf{});
    }
    if (g) lanes.store(g + i, d);
    lanes.store(g_sum + i, lanes.load(g_sum + i) + d);
    lanes.store(g_d_sum + i, simd::fma(d, x - mean, lanes.load(g_d_sum + i)));
  });
}

template <class T>
void backward_sums(const BatchNormBackwardSums& op) {
  const auto [rows, C] = op.shape;
  const RowGroups groups{rows};
  float* partial = floats(op.workspace);  // [groups, 2, C]
  const size_t stride = 2 * size_t(C);
  sum_groups(groups, partial, stride,
             [&op](int row, float* sums) { add_row<T>(op, row, sums, sums + op.shape.C); });
  add_groups(op.sums, partial, groups.count(), stride, 2 * C, false);
  float* g_xhat_sums = op.sums + C;
  for_each(C, [&](int i, auto lanes) {
    const vf g_sum = lanes.load(op.sums + i);
    const vf g_xhat_sum = lanes.load(g_xhat_sums + i) * lanes.load(op.rstd + i);
    lanes.store(g_xhat_sums + i, g_xhat_sum);
    lanes.store(op.dbias + i, op.accumulate ? lanes.load(op.dbias + i) + g_sum : g_sum);
    lanes.store(op.dweight + i,
                op.accumulate ? lanes.load(op.dweight + i) + g_xhat_sum : g_xhat_sum);
  });
}

template <class T>
void backward(const BatchNormBackward& op) {
  const int C = op.shape.C;
  const float inverse_n = static_cast<float>(1 / (double(op.shape.rows) * op.parts));
  const T *dout = as<T>(op.dout), *inp = as<T>(op.inp);
  T* dinp = as<T>(op.dinp);
  for_strips(op.shape, [&](int first, int n, int begin, int end) {
    alignas(64) float scale[strip], offset[strip], slope[strip];
    for_each(n, [&](int i, auto lanes) {
      const vf rstd = lanes.load(op.rstd + first + i);
      lanes.store(scale + i, rstd * lanes.load(op.weight + first + i));
      lanes.store(offset + i, lanes.load(op.sums + first + i) * inverse_n);
      lanes.store(slope + i, lanes.load(op.sums + C + first + i) * inverse_n * rstd);
    });
    for (int row = begin; row < end; ++row) {
      const size_t at = size_t(row) * C + first;
      for_each(n, [&](int i, auto lanes) {
        const vf x = lanes.load(inp + at + i), mean = lanes.load(op.mean + first + i),
                 s = lanes.load(scale + i);
        vf g = lanes.load(dout + at + i);
        if (op.relu)
          g = simd::select(normalised(x, mean, s, lanes.load(op.bias + first + i)) > 0.0f, g, vf{});
        const vf d = g - lanes.load(offset + i) - (x - mean) * lanes.load(slope + i);
        lanes.store(dinp + at + i, s * d);
      });
    }
  });
}

}  // namespace

template <>
void CpuKernels::run(const BatchNormForward& op) {
  for (int c = 0; c < op.shape.C; ++c) merge_moments(op, c);
  with_type(op.dtype, [&]<class T>(T) {
    normalise<T>(op, op.mean, [&](int i, auto lanes) { return lanes.load(op.rstd + i); });
  });
}

template <>
void CpuKernels::run(const BatchNormEvaluate& op) {
  with_type(op.dtype, [&]<class T>(T) {
    normalise<T>(op, op.running_mean, [&](int i, auto lanes) {
      return 1.0f / simd::sqrt(lanes.keep(lanes.load(op.running_var + i), set(1.0f)) + op.eps);
    });
  });
}

template <>
size_t CpuKernels::workspace(const BatchNormBackwardSums& op) {
  return sizeof(float) * 2 * RowGroups{op.shape.rows}.count() * op.shape.C;
}

template <>
void CpuKernels::run(const BatchNormBackwardSums& op) {
  with_type(op.dtype, [&]<class T>(T) { backward_sums<T>(op); });
}

template <>
void CpuKernels::run(const BatchNormBackward& op) {
  with_type(op.dtype, [&]<class T>(T) { backward<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
