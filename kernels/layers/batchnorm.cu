// Batch normalisation over the rows of [rows, C], with ReLU and the residual add:
//   y = (inp - mean) * rstd * weight + bias (+ residual),   out = relu ? max(y, 0) : y
// The residual may have a batch norm of its own, which is applied as the residual is added.
//   g = dout where y > 0, else 0 (without relu: dout);   xhat = (inp - mean) * rstd
//   sums = (sum of g, sum of g * xhat);   dbias, dweight (+)= sums
//   dinp = weight * rstd * (g - sums[0] / n - xhat * sums[1] / n)
// Saved for backward: inp, mean, rstd, and if y can't be recomputed from inp, one bit per element:
// whether out > 0. dbias and dweight are = or += per accumulate, everything else =.
//
// Block: a stripe of columns and every gridDim.y-th group of rows (column_sums.cuh). Thread:
// `width` columns, whose constants stay in registers. Each thread merges the moments itself; the
// threads of the last row write mean, rstd and the running statistics. Forward and the sums visit
// the rows from last to first, since the L2 cache still holds the end of what was written just
// before; dinp's kernel starts with the first row, with which the sums ended. In the backward
// sums, a stripe's last block to finish adds up the sums of all its blocks. The grid has as many
// blocks as the GPU runs concurrently.
//
// Memory is the limit: 4 (forward) to 6 bytes per element in 16 bits. Registers and blocks per SM:
// tests/kernels/resources.txt.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_sums.cuh"
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// A thread merges the parts' moments of a channel.
__global__ void batchnorm_moments_plain(BatchNormForward op, BatchNormForward::Norm norm) {
  const size_t C = op.shape.C, c = thread_number();
  if (c >= C) return;
  const float n = float(op.shape.rows) * op.parts;
  float mean = 0, variance = 0;
  for (int p = 0; p < op.parts; ++p) mean += norm.moments[2 * p * C + c] / op.parts;
  for (int p = 0; p < op.parts; ++p) {
    const float d = norm.moments[2 * p * C + c] - mean;
    variance += (norm.moments[(2 * p + 1) * C + c] + d * d) / op.parts;
  }
  norm.mean[c] = mean, norm.rstd[c] = 1 / sqrtf(variance + op.eps);
  if (!norm.running_mean || !isfinite(mean) || !isfinite(variance)) return;
  const float unbiased = n > 1 ? variance * (n / (n - 1)) : variance;
  norm.running_mean[c] += op.momentum * (mean - norm.running_mean[c]);
  norm.running_var[c] += op.momentum * (unbiased - norm.running_var[c]);
}

template <class Norm>
__device__ float normalised_plain(const Norm& norm, const float* bias, size_t c, float x) {
  return fmaf(x - norm.mean[c], norm.rstd[c] * norm.weight[c], bias[c]);
}

template <class T>
__global__ void batchnorm_forward_plain(BatchNormForward op) {
  const size_t C = op.shape.C, i = thread_number(), c = i % C;
  if (i >= op.shape.rows * C) return;
  float y = normalised_plain(op.norm, op.norm.bias, c, to_float(as<T>(op.inp)[i]));
  if (op.residual) {
    const float x = to_float(as<T>(op.residual)[i]);
    const auto& norm = op.residual_norm;
    y += norm.moments ? normalised_plain(norm, norm.bias, c, x) : x;
  }
  as<T>(op.out)[i] = from_float<T>(op.relu && y < 0 ? 0.0f : y);  // NaN stays NaN
}

// A thread writes a word of relu_mask: 64 channels of a row.
template <class T>
__global__ void batchnorm_relu_mask_plain(BatchNormForward op) {
  const size_t rows = op.shape.rows, C = op.shape.C, i = thread_number();
  const size_t row = i % rows, first = i / rows * 64;
  if (first >= C) return;
  uint64_t word = 0;
  for (size_t c = first; c < C && c < first + 64; ++c)
    word |= uint64_t{to_float(as<T>(op.out)[row * C + c]) > 0} << (c - first);
  op.relu_mask[i] = word;
}

template <class T>
__global__ void batchnorm_evaluate_plain(BatchNormEvaluate op) {
  const size_t C = op.shape.C, i = thread_number(), c = i % C;
  if (i >= op.shape.rows * C) return;
  const float scale = rsqrtf(op.running_var[c] + op.eps) * op.weight[c];
  float y = fmaf(to_float(as<T>(op.inp)[i]) - op.running_mean[c], scale, op.bias[c]);
  if (op.residual) y += to_float(as<T>(op.residual)[i]);
  as<T>(op.out)[i] = from_float<T>(op.relu && y < 0 ? 0.0f : y);
}

// Whether ReLU passed element i. norm: op itself, or BatchNormBackward's op.norm.
template <class T, class Op, class Norm>
__device__ bool passed_relu(const Op& op, const Norm& norm, size_t i) {
  const size_t rows = op.shape.rows, C = op.shape.C, row = i / C, c = i % C;
  if (!op.relu) return true;
  if constexpr (requires { op.relu_mask; })
    if (op.relu_mask) return op.relu_mask[c / 64 * rows + row] >> c % 64 & 1;
  return normalised_plain(norm, op.bias, c, to_float(as<T>(norm.inp)[i])) > 0;
}

// A thread adds up a channel.
template <class T>
__global__ void batchnorm_backward_sums_plain(BatchNormBackwardSums op) {
  const size_t C = op.shape.C, c = thread_number();
  if (c >= C) return;
  float g_sum = 0, g_xhat_sum = 0;
  for (size_t i = c; i < op.shape.rows * C; i += C) {
    const float g = passed_relu<T>(op, op, i) ? to_float(as<T>(op.dout)[i]) : 0;
    g_sum += g;
    g_xhat_sum += g * (to_float(as<T>(op.inp)[i]) - op.mean[c]) * op.rstd[c];
    if (op.g) as<T>(op.g)[i] = from_float<T>(g);
  }
  op.sums[c] = g_sum, op.sums[C + c] = g_xhat_sum;
  set_or_add(op.dbias[c], g_sum, op.accumulate);
  set_or_add(op.dweight[c], g_xhat_sum, op.accumulate);
}

template <class T>
__device__ void write_dinp_plain(const BatchNormBackward& op, const BatchNormBackward::Norm& norm,
                                 size_t i, float g) {
  const size_t C = op.shape.C, c = i % C;
  const float n = float(op.shape.rows) * op.parts;
  const float xhat = (to_float(as<T>(norm.inp)[i]) - norm.mean[c]) * norm.rstd[c];
  as<T>(norm.dinp)[i] = from_float<T>(norm.weight[c] * norm.rstd[c] *
                                      (g - norm.sums[c] / n - xhat * norm.sums[C + c] / n));
}

template <class T>
__global__ void batchnorm_backward_plain(BatchNormBackward op) {
  const size_t i = thread_number();
  if (i >= size_t(op.shape.rows) * op.shape.C) return;
  const float g = passed_relu<T>(op, op.norm, i) ? to_float(as<T>(op.dout)[i]) : 0;
  write_dinp_plain<T>(op, op.norm, i, g);
  if (op.residual_norm.dinp) write_dinp_plain<T>(op, op.residual_norm, i, g);
}

// ---- columns and rows ---------------------------------------------------------------------------
// Calls each(at, row, x, bits) for every row of the thread: x[t] are its columns of `tensors[t]`,
// from element `at` on, and bits, if by_bits, are the columns' bits of `relu_mask`. Loads `ahead`
// rows at a time.
enum class Order { forwards, backwards };
template <class T, int width, Order order, int ahead, bool by_bits = false, int n, class Each>
__device__ void for_rows(const void* const (&tensors)[n], const RowsShape& shape, Each each,
                         const uint64_t* relu_mask = nullptr) {
  using S = Stripe<width>;
  const int column = S::column();
  const unsigned rows = column < shape.C ? shape.rows : 0;
  constexpr bool back = order == Order::backwards;
  const auto row_of = [&](unsigned i) { return static_cast<int>(back ? rows - 1 - i : i); };
  const int64_t step = (back ? -1 : 1) * int64_t{S::step()} * shape.C;  // from row to row
  int64_t at = int64_t{row_of(S::row())} * shape.C + column;
  for (unsigned row = S::row(); row < rows; row += ahead * S::step(), at += ahead * step) {
    Elements<T, width> x[ahead][n];
    unsigned bits[ahead] = {};
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
#pragma unroll
      for (int t = 0; t < n; ++t)
        x[k][t] = load<width>(static_cast<const T*>(tensors[t]) + at +
                              (row + k * S::step() < rows ? k * step : 0));
      if constexpr (by_bits)
        bits[k] =
            load_relu_mask<width>(relu_mask, shape.rows, row_of(S::row_or(row, k, rows)), column);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (row + k * S::step() < rows)
        each(at + k * step, row_of(row + k * S::step()), x[k], bits[k]);
  }
}

// ---- forward and evaluation ---------------------------------------------------------------------
// Mean and biased variance of the batch, over its parts.
template <int width>
struct Batch {
  Elements<float, width> mean, variance;
};
template <int width>
__device__ Batch<width> batch_of(const BatchNormForward& op, const BatchNormForward::Norm& norm,
                                 const float* variances, int column) {
  const float* means = norm.moments;
  Batch<width> all{load<width>(means + column), load<width>(variances + column)};
  if (op.parts == 1) return all;
  const auto parts = static_cast<float>(op.parts);
  const size_t stride = 2 * size_t(op.shape.C);
#pragma unroll 2
  for (int p = 1; p < op.parts; ++p) {
    const auto mean = load<width>(means + p * stride + column),
               variance = load<width>(variances + p * stride + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      all.mean.at[i] += mean.at[i];
      all.variance.at[i] += variance.at[i];
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) all.mean.at[i] /= parts;
#pragma unroll 2
  for (int p = 0; p < op.parts; ++p) {
    const auto mean = load<width>(means + p * stride + column);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float difference = mean.at[i] - all.mean.at[i];
      all.variance.at[i] = fmaf(difference, difference, all.variance.at[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < width; ++i) all.variance.at[i] /= parts;
  return all;
}

template <int width>
__device__ void update_running(const BatchNormForward& op, const BatchNormForward::Norm& norm,
                               const Batch<width>& batch, int column) {
  const float n = static_cast<float>(op.shape.rows) * static_cast<float>(op.parts);
  const float unbiased = n > 1 ? n / (n - 1) : 1;
  auto mean = load<width>(norm.running_mean + column),
       variance = load<width>(norm.running_var + column);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float m = batch.mean.at[i], v = batch.variance.at[i];
    if (!isfinite(m) || !isfinite(v)) continue;
    mean.at[i] = fmaf(op.momentum, m - mean.at[i], mean.at[i]);
    variance.at[i] = fmaf(op.momentum, v * unbiased - variance.at[i], variance.at[i]);
  }
  store<width>(norm.running_mean + column, mean);
  store<width>(norm.running_var + column, variance);
}

// A norm's constants for the thread's columns. The threads of the last row write the statistics.
template <int width>
__device__ NormColumns<width> columns_of(const BatchNormForward& op,
                                         const BatchNormForward::Norm& norm, const float* variances,
                                         int column) {
  const Batch<width> batch = batch_of<width>(op, norm, variances, column);
  Elements<float, width> rstd;
#pragma unroll
  for (int i = 0; i < width; ++i) rstd.at[i] = rsqrtf(batch.variance.at[i] + op.eps);
  if (norm.mean && Stripe<width>::row() == 0) {
    store<width>(norm.mean + column, batch.mean);
    store<width>(norm.rstd + column, rstd);
    if (norm.running_mean) update_running<width>(op, norm, batch, column);
  }
  return norm_columns<width>(batch.mean.at, rstd.at, norm.weight, norm.bias, column);
}

template <class T, int width, bool residual, bool residual_norm>
__device__ void normalise_rows(const BatchNormForward& op, const float* variances) {
  using S = Stripe<width>;
  const int column = S::column();
  if (column >= op.shape.C) return;  // no barriers below
  const auto norm = columns_of<width>(op, op.norm, variances, column);
  NormColumns<width> other;
  if constexpr (residual_norm)
    other = columns_of<width>(op, op.residual_norm, op.residual_norm.moments + op.shape.C, column);
  const auto each = [&](int64_t at, int row, const auto& x, unsigned) {
    Elements<T, width> y;
    unsigned relu_mask = 0;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      float v = norm.normalised(i, to_float(x[0].at[i]));
      if constexpr (residual && !residual_norm) v += to_float(x[1].at[i]);
      if constexpr (residual_norm) v += other.normalised(i, to_float(x[1].at[i]));
      y.at[i] = from_float<T>(op.relu && v < 0 ? 0.0f : v);  // NaN stays NaN
      relu_mask |= unsigned{to_float(y.at[i]) > 0} << i;
    }
    store<width>(static_cast<T*>(op.out) + at, y);
    if (residual && op.relu_mask)
      store_relu_mask<width>(op.relu_mask, op.shape, row, column, relu_mask);
  };
  if constexpr (residual)
    for_rows<T, width, Order::backwards, 2>({op.inp, op.residual}, op.shape, each);
  else
    for_rows<T, width, Order::backwards, 4>({op.inp}, op.shape, each);
}

// Training. Also evaluation in packs: there is one part, whose moments are the running statistics,
// and only out is written.
template <class T, int width, bool residual>
__global__ void __launch_bounds__(256, 4)
    batchnorm_normalise(BatchNormForward op, const float* variances) {
  await_kernel_ahead();
  normalise_rows<T, width, residual, false>(op, variances);
}
// Training with residual_norm.
template <class T, int width>
__global__ void __launch_bounds__(256, 2)
    batchnorm_normalise_both(BatchNormForward op, const float* variances) {
  await_kernel_ahead();
  normalise_rows<T, width, true, true>(op, variances);
}

// ---- backward -----------------------------------------------------------------------------------
template <int width>
struct SumsShared {
  union {
    typename Stripe<width>::Shared stripe;
    typename LastBlockOfStripe<NormSums, width>::Shared merge;
  };
};

// by_bits: the sign of y is in `relu_mask`.
template <class T, int width, bool by_bits>
__global__ void __launch_bounds__(256, 2)
    batchnorm_backward_sums(BatchNormBackwardSums op, NormSums sums, RowParts parts) {
  await_kernel_ahead();
  using S = Stripe<width>;
  const int column = S::column() < op.shape.C ? S::column() : 0;
  const auto mean = load<width>(op.mean + column), rstd = load<width>(op.rstd + column);
  const auto c = norm_columns<width>(mean.at, rstd.at, op.weight, op.bias, column);
  float g_sum[width] = {}, g_d_sum[width] = {};  // of g and of g * (inp - mean)
  const auto each = [&](int64_t at, int, const auto& x, unsigned bits) {
    Elements<T, width> g;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = to_float(x[1].at[i]);
      const bool on = by_bits ? bits >> i & 1 : !op.relu || c.normalised(i, value) > 0;
      const float d = on ? to_float(x[0].at[i]) : 0.0f;
      g.at[i] = from_float<T>(d);
      g_sum[i] += d;
      g_d_sum[i] = fmaf(d, value - c.mean[i], g_d_sum[i]);
    }
    if (op.g) store<width>(static_cast<T*>(op.g) + at, g);
  };
  for_rows<T, width, Order::backwards, 4, by_bits>({op.dout, op.inp}, op.shape, each, op.relu_mask);
#pragma unroll
  for (int i = 0; i < width; ++i) g_d_sum[i] *= rstd.at[i];
  auto& s = shared<SumsShared<width>>();
  float* const partial = parts.partial + size_t(blockIdx.y) * 2 * op.shape.C;
  S::write_sums(g_sum, partial, op.shape.C, s.stripe);
  __syncthreads();
  S::write_sums(g_d_sum, partial + op.shape.C, op.shape.C, s.stripe);
  merge_stripes<width>(sums, parts, s.merge);
}

// A norm's constants for the thread's columns.
template <int width>
struct GradientColumns {
  float mean[width], scale[width], offset[width], slope[width];

  __device__ float dinp(int i, float g, float x) const {
    return scale[i] * fmaf(x - mean[i], slope[i], g + offset[i]);
  }
};
template <int width>
__device__ GradientColumns<width> columns_of(const BatchNormBackward::Norm& norm, int C,
                                             float inverse_n, int column) {
  const auto mean = load<width>(norm.mean + column), rstd = load<width>(norm.rstd + column),
             weight = load<width>(norm.weight + column), g_sum = load<width>(norm.sums + column),
             g_xhat_sum = load<width>(norm.sums + C + column);
  GradientColumns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    c.mean[i] = mean.at[i], c.scale[i] = rstd.at[i] * weight.at[i];
    c.offset[i] = -g_sum.at[i] * inverse_n;
    c.slope[i] = -g_xhat_sum.at[i] * inverse_n * rstd.at[i];
  }
  return c;
}

// both: also computes residual_norm's gradient; relu is then false.
template <class T, int width, bool both>
__device__ void backward_rows(const BatchNormBackward& op, float inverse_n) {
  using S = Stripe<width>;
  const int column = S::column();
  if (column >= op.shape.C) return;  // no barriers below
  const auto norm = columns_of<width>(op.norm, op.shape.C, inverse_n, column);
  const auto bias = load<width>(op.bias + column);
  GradientColumns<width> other;
  if constexpr (both) other = columns_of<width>(op.residual_norm, op.shape.C, inverse_n, column);
  const auto each = [&](int64_t at, int, const auto& x, unsigned) {
    Elements<T, width> dinp, residual_dinp;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = to_float(x[1].at[i]);
      const bool on = both || !op.relu || fmaf(value - norm.mean[i], norm.scale[i], bias.at[i]) > 0;
      const float g = on ? to_float(x[0].at[i]) : 0.0f;
      dinp.at[i] = from_float<T>(norm.dinp(i, g, value));
      if constexpr (both)
        residual_dinp.at[i] = from_float<T>(other.dinp(i, g, to_float(x[2].at[i])));
    }
    store<width>(static_cast<T*>(op.norm.dinp) + at, dinp);
    if constexpr (both) store<width>(static_cast<T*>(op.residual_norm.dinp) + at, residual_dinp);
  };
  if constexpr (both)
    for_rows<T, width, Order::forwards, 4>({op.dout, op.norm.inp, op.residual_norm.inp}, op.shape,
                                           each);
  else
    for_rows<T, width, Order::forwards, 4>({op.dout, op.norm.inp}, op.shape, each);
}

template <class T, int width>
__global__ void __launch_bounds__(256, 2)
    batchnorm_backward(BatchNormBackward op, float inverse_n) {
  await_kernel_ahead();
  backward_rows<T, width, false>(op, inverse_n);
}
template <class T, int width>
__global__ void __launch_bounds__(256, 2)
    batchnorm_backward_both(BatchNormBackward op, float inverse_n) {
  await_kernel_ahead();
  backward_rows<T, width, true>(op, inverse_n);
}

// ---- launches -----------------------------------------------------------------------------------
// Blocks per SM, as in the kernels' __launch_bounds__.
constexpr int normalise_blocks = 4, normalise_both_blocks = 2, backward_blocks = 2;

void normalise(const DeviceProps& props, const BatchNormForward& op, const float* variances,
               cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const int blocks = op.residual_norm.moments ? normalise_both_blocks : normalise_blocks;
    const dim3 grid = S::grid(props, blocks, op.shape.rows, op.shape.C);
    if (op.residual_norm.moments)
      launch<batchnorm_normalise_both<T, width>>(grid, S::threads, 0, stream, op, variances);
    else if (op.residual)
      launch<batchnorm_normalise<T, width, true>>(grid, S::threads, 0, stream, op, variances);
    else
      launch<batchnorm_normalise<T, width, false>>(grid, S::threads, 0, stream, op, variances);
  });
}

}  // namespace

template <>
void CudaKernels::run(const BatchNormForward& op, cudaStream_t stream) {
  normalise(props_, op, op.norm.moments + op.shape.C, stream);
}

template <>
void CudaKernels::run(const BatchNormEvaluate& op, cudaStream_t stream) {
  const size_t count = size_t(op.shape.rows) * op.shape.C;
  const BatchNormForward forward{
      .out = op.out,
      .inp = op.inp,
      .residual = op.residual,
      .norm = {.moments = op.running_mean, .weight = op.weight, .bias = op.bias},
      .shape = op.shape,
      .parts = 1,
      .eps = op.eps,
      .relu = op.relu,
      .dtype = op.dtype};
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    if constexpr (width == 1)
      launch_each<batchnorm_evaluate_plain<T>>(count, stream, op);
    else
      normalise(props_, forward, op.running_var, stream);
  });
}

template <>
size_t CudaKernels::workspace(const BatchNormBackwardSums& op) {
  size_t bytes = 0;
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    const dim3 grid = Stripe<width>::grid(props_, backward_blocks, op.shape.rows, op.shape.C);
    bytes = sizeof(float) * 2 * grid.y * size_t(op.shape.C);
  });
  return bytes;
}

template <>
void CudaKernels::run(const BatchNormBackwardSums& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const dim3 grid = S::grid(props_, backward_blocks, op.shape.rows, op.shape.C);
    constexpr size_t shared_bytes = sizeof(SumsShared<width>);
    const NormSums sums{.sums = op.sums,
                        .dweight = op.dweight,
                        .dbias = op.dbias,
                        .C = op.shape.C,
                        .accumulate = op.accumulate};
    const RowParts parts = row_parts(props_, op.workspace, static_cast<int>(grid.y), op.shape.C,
                                     static_cast<int>(grid.x));
    if (op.relu && op.relu_mask)
      launch<batchnorm_backward_sums<T, width, true>>(grid, S::threads, shared_bytes, stream, op,
                                                      sums, parts);
    else
      launch<batchnorm_backward_sums<T, width, false>>(grid, S::threads, shared_bytes, stream, op,
                                                       sums, parts);
  });
}

template <>
void CudaKernels::run(const BatchNormBackward& op, cudaStream_t stream) {
  const auto inverse_n = static_cast<float>(1 / (double(op.shape.rows) * op.parts));
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const dim3 grid = S::grid(props_, backward_blocks, op.shape.rows, op.shape.C);
    if (op.residual_norm.dinp)
      launch<batchnorm_backward_both<T, width>>(grid, S::threads, 0, stream, op, inverse_n);
    else
      launch<batchnorm_backward<T, width>>(grid, S::threads, 0, stream, op, inverse_n);
  });
}

template <>
void PlainKernels::run(const BatchNormForward& op, cudaStream_t stream) {
  const size_t rows = op.shape.rows, C = op.shape.C;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<batchnorm_moments_plain>(C, stream, op, op.norm);
    if (op.residual_norm.moments)
      launch_each<batchnorm_moments_plain>(C, stream, op, op.residual_norm);
    launch_each<batchnorm_forward_plain<T>>(rows * C, stream, op);
    if (op.relu_mask) launch_each<batchnorm_relu_mask_plain<T>>(rows * ceil_div(C, 64), stream, op);
  });
}

template <>
void PlainKernels::run(const BatchNormEvaluate& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<batchnorm_evaluate_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

template <>
void PlainKernels::run(const BatchNormBackwardSums& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<batchnorm_backward_sums_plain<T>>(op.shape.C, stream, op);
  });
}

template <>
void PlainKernels::run(const BatchNormBackward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<batchnorm_backward_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
