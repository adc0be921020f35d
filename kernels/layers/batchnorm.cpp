// Batch normalisation over the rows of [rows, C], with ReLU and the residual add:
//   y = (inp - mean) * rstd * weight + bias (+ residual),   out = relu ? max(y, 0) : y
//   g = dout where y > 0, else 0 (without relu: dout);   xhat = (inp - mean) * rstd
// The residual may have a batch norm of its own, which is applied as the residual is added.
//   sums = (sum of g, sum of g * xhat);   dbias, dweight (+)= sums
//   dinp = weight * rstd * (g - sums[0] / n - xhat * sums[1] / n)
// Saved for backward: inp, mean, rstd, and if y can't be recomputed from inp, one bit per element:
// whether out > 0. dbias and dweight are = or += per accumulate, everything else =. Threads divide
// the rows; each processes its rows in strips of columns, with a strip's scales in a table.
// Backward's sums go through RowGroups, so they don't depend on the number of threads.
// Memory is the limit: each element is read once and written once.
#include <omp.h>

#include <optional>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::set;
using simd::vf;

// Calls each(first, n, begin, end) on all threads: columns first .. first + n of rows begin .. end,
// the thread's share.
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

// y before the residual is added; scale = rstd * weight. Backward recomputes y's sign.
vf normalised(vf x, vf mean, vf scale, vf bias) { return simd::fma(x - mean, scale, bias); }

// A norm's constants in a strip.
struct NormStrip {
  const float *mean, *bias;  // of the strip's first column
  alignas(64) float scale[strip];

  template <class Rstd>  // rstd(i, lanes): rstd of columns i ...
  NormStrip(const float* means, Rstd rstd, const float* weight, const float* biases, int first,
            int n)
      : mean(means + first), bias(biases + first) {
    for_each(n, [&](int i, auto lanes) {
      lanes.store(scale + i, rstd(first + i, lanes) * lanes.load(weight + first + i));
    });
  }
  NormStrip(const BatchNormForward::Norm& norm, int first, int n)
      : NormStrip(
            norm.mean, [&](int i, auto lanes) { return lanes.load(norm.rstd + i); }, norm.weight,
            norm.bias, first, n) {}

  vf normalised(vf x, int i, auto lanes) const {
    return BAREVISION_ISA::normalised(x, lanes.load(mean + i), lanes.load(scale + i),
                                      lanes.load(bias + i));
  }
};

// Forward and evaluation. `other` normalises the residual, if not null.
template <class T, class Op>
void normalise_strip(const Op& op, const NormStrip& norm, const NormStrip* other, int first, int n,
                     int begin, int end) {
  const T *inp = as<T>(op.inp), *residual = as<T>(op.residual);
  T* out = as<T>(op.out);
  for (int row = begin; row < end; ++row) {
    const size_t at = size_t(row) * op.shape.C + first;
    for_each(n, [&](int i, auto lanes) {
      vf y = norm.normalised(lanes.load(inp + at + i), i, lanes);
      if (residual) {
        const vf x = lanes.load(residual + at + i);
        y += other ? other->normalised(x, i, lanes) : x;
      }
      if (op.relu) y = simd::max(vf{}, y);  // NaN stays NaN
      lanes.store(out + at + i, y);
      if constexpr (requires { op.relu_mask; })
        if (op.relu_mask) {
          const simd::bits bits = simd::to_bits(simd::rounded(T{}, y) > 0.0f);
          char* to = reinterpret_cast<char*>(op.relu_mask);
          __builtin_memcpy(to + relu_mask_byte(op.shape, row, first + i), &bits, sizeof bits);
        }
    });
  }
}

// Mean and rstd over all parts, and the running statistics.
void merge_moments(const BatchNormForward& op, const BatchNormForward::Norm& norm, int c) {
  const size_t C = op.shape.C;
  float mean = 0, variance = 0;
  for (int p = 0; p < op.parts; ++p) mean += norm.moments[2 * p * C + c];
  mean /= float(op.parts);
  for (int p = 0; p < op.parts; ++p) {
    const float difference = norm.moments[2 * p * C + c] - mean;
    variance += norm.moments[(2 * p + 1) * C + c] + difference * difference;
  }
  variance /= float(op.parts);
  norm.mean[c] = mean;
  norm.rstd[c] = 1.0f / __builtin_sqrtf(variance + op.eps);
  if (!norm.running_mean || !__builtin_isfinite(mean) || !__builtin_isfinite(variance)) return;
  const double n = double(op.shape.rows) * op.parts;
  const float unbiased = n > 1 ? variance * float(n / (n - 1)) : variance;
  norm.running_mean[c] += op.momentum * (mean - norm.running_mean[c]);
  norm.running_var[c] += op.momentum * (unbiased - norm.running_var[c]);
}

// Adds a row's terms of backward's first pass to the partial sums of g and of g * (inp - mean).
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

// The constants of a norm's gradient in a strip: scale * (g - offset - (x - mean) * slope).
struct GradientStrip {
  const BatchNormBackward::Norm& norm;
  alignas(64) float scale[strip], offset[strip], slope[strip];

  GradientStrip(const BatchNormBackward::Norm& of, int C, float inverse_n, int first, int n)
      : norm(of) {
    for_each(n, [&](int i, auto lanes) {
      const vf rstd = lanes.load(norm.rstd + first + i);
      lanes.store(scale + i, rstd * lanes.load(norm.weight + first + i));
      lanes.store(offset + i, lanes.load(norm.sums + first + i) * inverse_n);
      lanes.store(slope + i, lanes.load(norm.sums + C + first + i) * inverse_n * rstd);
    });
  }
  vf gradient(vf g, vf x, vf mean, int i, auto lanes) const {
    const vf d = g - lanes.load(offset + i) - (x - mean) * lanes.load(slope + i);
    return lanes.load(scale + i) * d;
  }
};

template <class T>
void backward(const BatchNormBackward& op) {
  const auto &norm = op.norm, &other = op.residual_norm;
  const int C = op.shape.C;
  const float inverse_n = static_cast<float>(1 / (double(op.shape.rows) * op.parts));
  const T *dout = as<T>(op.dout), *inp = as<T>(norm.inp), *residual = as<T>(other.inp);
  for_strips(op.shape, [&](int first, int n, int begin, int end) {
    const GradientStrip own(norm, C, inverse_n, first, n);
    std::optional<GradientStrip> second;
    if (residual) second.emplace(other, C, inverse_n, first, n);
    for (int row = begin; row < end; ++row) {
      const size_t at = size_t(row) * C + first;
      for_each(n, [&](int i, auto lanes) {
        const vf x = lanes.load(inp + at + i), mean = lanes.load(norm.mean + first + i);
        vf g = lanes.load(dout + at + i);
        if (op.relu) {
          const vf y =
              normalised(x, mean, lanes.load(own.scale + i), lanes.load(op.bias + first + i));
          g = simd::select(y > 0.0f, g, vf{});
        }
        lanes.store(as<T>(norm.dinp) + at + i, own.gradient(g, x, mean, i, lanes));
        if (second)
          lanes.store(as<T>(other.dinp) + at + i,
                      second->gradient(g, lanes.load(residual + at + i),
                                       lanes.load(other.mean + first + i), i, lanes));
      });
    }
  });
}

}  // namespace

template <>
void CpuKernels::run(const BatchNormForward& op) {
  const bool two = op.residual_norm.moments;
  for (int c = 0; c < op.shape.C; ++c) {
    merge_moments(op, op.norm, c);
    if (two) merge_moments(op, op.residual_norm, c);
  }
  with_type(op.dtype, [&]<class T>(T) {
    for_strips(op.shape, [&](int first, int n, int begin, int end) {
      const NormStrip norm(op.norm, first, n);
      std::optional<NormStrip> other;
      if (two) other.emplace(op.residual_norm, first, n);
      normalise_strip<T>(op, norm, two ? &*other : nullptr, first, n, begin, end);
    });
  });
}

template <>
void CpuKernels::run(const BatchNormEvaluate& op) {
  const auto rstd = [&](int i, auto lanes) {
    return 1.0f / simd::sqrt(lanes.keep(lanes.load(op.running_var + i), set(1.0f)) + op.eps);
  };
  with_type(op.dtype, [&]<class T>(T) {
    for_strips(op.shape, [&](int first, int n, int begin, int end) {
      const NormStrip norm(op.running_mean, rstd, op.weight, op.bias, first, n);
      normalise_strip<T>(op, norm, nullptr, first, n, begin, end);
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
