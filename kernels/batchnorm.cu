// Batch normalisation over the rows of [rows, C], with ReLU and the residual add:
//   y = (inp - mean) * rstd * weight + bias (+ residual),   out = relu ? max(y, 0) : y
//   g = dout where y > 0, else 0 (without relu: dout);   xhat = (inp - mean) * rstd
//   sums = (sum of g, sum of g * xhat);   dbias, dweight (+)= sums
//   dinp = weight * rstd * (g - sums[0] / n - xhat * sums[1] / n)
// Saved for backward: inp, mean, rstd, and out where y can't be computed again from inp.
//
// A block owns a stripe of columns (128 bytes wide where C allows 16-byte accesses) and every
// gridDim.y-th group of rows, as column_sums.cuh says; a thread keeps to `width` columns, has what
// it needs of them in registers, and four rows under way. Mean and rstd each thread computes for
// itself from the moments; the blocks of the first rows write them down.
// Backward's sums: partial [blocks, 2, C], then column_sums.cuh's second stage, once for sums and
// once for dbias and dweight.
//
// At most 8 flops an element for 4 to 16 bytes: memory is the limit. An H200 wants some 30 KB of
// reads under way on each multiprocessor; 4 rows x 16 bytes x 1024 threads (forward and dinp; the
// sums 768) are 64 KB of each tensor that is read.
#include "kernels/column_sums.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// What a thread knows of its columns.
template <int width>
struct Columns {
  float mean[width], scale[width], bias[width];  // scale = rstd * weight

  // What comes before the residual and ReLU; its sign is computed again in backward.
  __device__ float normalised(int i, float x) const { return fmaf(x - mean[i], scale[i], bias[i]); }
};

template <int width>
__device__ Columns<width> columns_of(const float* mean, const float* rstd, const float* weight,
                                     const float* bias, int column) {
  const auto m = load<width>(mean + column), r = load<width>(rstd + column),
             w = load<width>(weight + column), b = load<width>(bias + column);
  Columns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    c.mean[i] = m.at[i];
    c.scale[i] = r.at[i] * w.at[i];
    c.bias[i] = b.at[i];
  }
  return c;
}

// Calls each(row, first, second) for every row of the block, with the elements of `a` and of `b`
// (or, where that is null, of a) in this thread's columns; four rows are loaded together.
constexpr int ahead = 4;
template <class T, int width, class Each>
__device__ void for_rows(const void* a, const void* b, int n_rows, int C, Each each) {
  using S = Stripe<width>;
  const int column = S::column();
  const unsigned rows = column < C ? n_rows : 0;
  const T* first = static_cast<const T*>(a);
  const T* second = static_cast<const T*>(b ? b : a);
  for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
    Elements<T, width> x[ahead], y[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const size_t at = size_t(S::row_or(row, k, rows)) * C + column;
      x[k] = load<width>(first + at);
      y[k] = load<width>(second + at);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      if (row + k * S::step() < rows) each(size_t(row + k * S::step()) * C + column, x[k], y[k]);
  }
}

template <class T, int width>
__device__ void normalise(const Columns<width>& c, void* out, const void* inp, const void* residual,
                          int rows, int C, bool relu) {
  const bool add = residual != nullptr;
  for_rows<T, width>(inp, residual, rows, C, [&](size_t at, const auto& x, const auto& other) {
    Elements<T, width> y;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      float v = c.normalised(i, to_float(x.at[i]));
      if (add) v += to_float(other.at[i]);
      y.at[i] = from_float<T>(relu && v < 0 ? 0.0f : v);  // a NaN stays one
    }
    store<width>(static_cast<T*>(out) + at, y);
  });
}

// ---- forward ------------------------------------------------------------------------------------
// Mean and biased variance of a column over all parts.
__device__ float2 merged_moments(const float* moments, int parts, int C, int column) {
  float mean = 0, variance = 0;
  for (int p = 0; p < parts; ++p) mean += moments[size_t(p) * 2 * C + column];
  mean /= static_cast<float>(parts);
  for (int p = 0; p < parts; ++p) {
    const float* part = moments + size_t(p) * 2 * C + column;
    const float difference = part[0] - mean;
    variance += fmaf(difference, difference, part[C]);
  }
  return {mean, variance / static_cast<float>(parts)};
}

__device__ inline void update_running(const BatchNormForward& op, int column, float mean,
                                      float variance) {
  if (!op.running_mean || !isfinite(mean) || !isfinite(variance)) return;
  const float n = static_cast<float>(op.rows) * static_cast<float>(op.parts);
  const float unbiased = n > 1 ? variance * (n / (n - 1)) : variance;
  float *const m = op.running_mean + column, *const v = op.running_var + column;
  *m = fmaf(op.momentum, mean - *m, *m);
  *v = fmaf(op.momentum, unbiased - *v, *v);
}

template <class T, int width>
__global__ void __launch_bounds__(256) batchnorm_forward(BatchNormForward op) {
  using S = Stripe<width>;
  const int column = S::column();
  if (column >= op.C) return;  // there are no barriers
  const bool writes = blockIdx.y == 0 && threadIdx.x < S::lanes;
  Columns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float2 of = merged_moments(op.moments, op.parts, op.C, column + i);
    const float rstd = rsqrtf(of.y + op.eps);
    c.mean[i] = of.x;
    c.scale[i] = rstd * op.weight[column + i];
    c.bias[i] = op.bias[column + i];
    if (!writes) continue;
    op.mean[column + i] = of.x;
    op.rstd[column + i] = rstd;
    update_running(op, column + i, of.x, of.y);
  }
  normalise<T, width>(c, op.out, op.inp, op.residual, op.rows, op.C, op.relu);
}

template <class T, int width>
__global__ void __launch_bounds__(256) batchnorm_evaluate(BatchNormEvaluate op) {
  const int column = Stripe<width>::column();
  if (column >= op.C) return;  // there are no barriers
  Columns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    c.mean[i] = op.running_mean[column + i];
    c.scale[i] = rsqrtf(op.running_var[column + i] + op.eps) * op.weight[column + i];
    c.bias[i] = op.bias[column + i];
  }
  normalise<T, width>(c, op.out, op.inp, op.residual, op.rows, op.C, op.relu);
}

// ---- backward -----------------------------------------------------------------------------------
// partial [gridDim.y, 2, C]
template <class T, int width>
__global__ void __launch_bounds__(256) batchnorm_backward_sums(BatchNormBackwardSums op) {
  using S = Stripe<width>;
  const int column = S::column() < op.C ? S::column() : 0;
  const auto c = columns_of<width>(op.mean, op.rstd, op.weight, op.bias, column);
  float g_sum[width] = {}, g_d_sum[width] = {};  // of g and of g * (inp - mean)
  for_rows<T, width>(op.dout, op.inp, op.rows, op.C, [&](size_t at, auto g, const auto& x) {
    Elements<T, width> y;
    if (op.out) y = load<width>(static_cast<const T*>(op.out) + at);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = to_float(x.at[i]);
      const float sign = op.out ? to_float(y.at[i]) : c.normalised(i, value);
      const float d = op.relu && !(sign > 0) ? 0.0f : to_float(g.at[i]);
      g.at[i] = from_float<T>(d);
      g_sum[i] += d;
      g_d_sum[i] = fmaf(d, value - c.mean[i], g_d_sum[i]);
    }
    if (op.g) store<width>(static_cast<T*>(op.g) + at, g);
  });
  const auto rstd = load<width>(op.rstd + column);
#pragma unroll
  for (int i = 0; i < width; ++i) g_d_sum[i] *= rstd.at[i];
  auto& s = shared<typename S::Shared>();
  float* partial = static_cast<float*>(op.workspace) + size_t(blockIdx.y) * 2 * op.C;
  S::write_sums(g_sum, partial, op.C, s);
  __syncthreads();
  S::write_sums(g_d_sum, partial + op.C, op.C, s);
}

template <class T, int width>
__global__ void __launch_bounds__(256) batchnorm_backward(BatchNormBackward op, float inverse_n) {
  using S = Stripe<width>;
  const int column = S::column();
  if (column >= op.C) return;  // there are no barriers
  const auto c = columns_of<width>(op.mean, op.rstd, op.weight, op.bias, column);
  const auto rstd = load<width>(op.rstd + column);
  const auto g_sum = load<width>(op.sums + column),
             g_xhat_sum = load<width>(op.sums + op.C + column);
  float offset[width], slope[width];
#pragma unroll
  for (int i = 0; i < width; ++i) {
    offset[i] = -g_sum.at[i] * inverse_n;
    slope[i] = -g_xhat_sum.at[i] * inverse_n * rstd.at[i];
  }
  for_rows<T, width>(op.dout, op.inp, op.rows, op.C, [&](size_t at, auto g, const auto& x) {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const float value = to_float(x.at[i]);
      const bool on = !op.relu || c.normalised(i, value) > 0;
      const float d = (on ? to_float(g.at[i]) : 0.0f) + offset[i];
      g.at[i] = from_float<T>(c.scale[i] * fmaf(value - c.mean[i], slope[i], d));
    }
    store<width>(static_cast<T*>(op.dinp) + at, g);
  });
}

// ---- launches -----------------------------------------------------------------------------------
template <class F>
void by_width(DType dtype, int C, F f) {
  by_dtype(dtype, [&]<class T>() {
    if (in_packs<T>(C))
      f.template operator()<T, Pack<T>::size>();
    else
      f.template operator()<T, 1>();
  });
}

constexpr int blocks_per_multiprocessor = 4;

template <int width>
dim3 grid_of(const Chip& chip, int rows, int C) {
  return Stripe<width>::grid(chip, blocks_per_multiprocessor, rows, C);
}

template <class Op>
void check(const Op& op, const char* name) {
  require(op.rows > 0 && op.C > 0, name, "rows and C must be positive");
  require(static_cast<int64_t>(op.rows) < INT64_C(1) << 31, name, "too many rows");
  require_pointer(op.inp, name, "inp");
  require_pointer(op.weight, name, "weight");
  require_pointer(op.bias, name, "bias");
}

}  // namespace

void CudaKernels::run(const BatchNormForward& op, Stream stream) {
  constexpr const char* name = "BatchNormForward";
  check(op, name);
  require(op.parts > 0, name, "parts must be positive");
  require(!op.running_mean == !op.running_var, name,
          "running_mean and running_var are given together or not at all");
  require_pointer(op.out, name, "out");
  require_pointer(op.mean, name, "mean");
  require_pointer(op.rstd, name, "rstd");
  require_pointer(op.moments, name, "moments");
  by_width(op.dtype, op.C, [&]<class T, int width>() {
    launch<batchnorm_forward<T, width>>(grid_of<width>(chip_, op.rows, op.C),
                                        Stripe<width>::threads, 0, cuda_stream(stream), op);
  });
}

void CudaKernels::run(const BatchNormEvaluate& op, Stream stream) {
  constexpr const char* name = "BatchNormEvaluate";
  check(op, name);
  require_pointer(op.out, name, "out");
  require_pointer(op.running_mean, name, "running_mean");
  require_pointer(op.running_var, name, "running_var");
  by_width(op.dtype, op.C, [&]<class T, int width>() {
    launch<batchnorm_evaluate<T, width>>(grid_of<width>(chip_, op.rows, op.C),
                                         Stripe<width>::threads, 0, cuda_stream(stream), op);
  });
}

size_t CudaKernels::workspace_bytes(const BatchNormBackwardSums& op) {
  size_t bytes = 0;
  by_width(op.dtype, op.C, [&]<class T, int width>() {
    bytes = sizeof(float) * 2 * grid_of<width>(chip_, op.rows, op.C).y * size_t(op.C);
  });
  return bytes;
}

void CudaKernels::run(const BatchNormBackwardSums& op, Stream stream) {
  constexpr const char* name = "BatchNormBackwardSums";
  check(op, name);
  require_pointer(op.sums, name, "sums");
  require_pointer(op.dweight, name, "dweight");
  require_pointer(op.dbias, name, "dbias");
  require_pointer(op.workspace, name, "workspace");
  require_pointer(op.dout, name, "dout");
  require_pointer(op.mean, name, "mean");
  require_pointer(op.rstd, name, "rstd");
  const cudaStream_t on = cuda_stream(stream);
  by_width(op.dtype, op.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const dim3 grid = grid_of<width>(chip_, op.rows, op.C);
    launch<batchnorm_backward_sums<T, width>>(grid, S::threads, sizeof(typename S::Shared), on, op);
    ColumnSums sums{.out = op.sums,
                    .out2 = op.sums + op.C,
                    .partial = static_cast<const float*>(op.workspace),
                    .blocks = static_cast<int>(grid.y),
                    .C = op.C,
                    .accumulate = false};
    finish_column_sums(sums, on);
    sums.out = op.dbias, sums.out2 = op.dweight, sums.accumulate = op.accumulate;
    finish_column_sums(sums, on);
  });
}

void CudaKernels::run(const BatchNormBackward& op, Stream stream) {
  constexpr const char* name = "BatchNormBackward";
  check(op, name);
  require(op.parts > 0, name, "parts must be positive");
  require_pointer(op.dinp, name, "dinp");
  require_pointer(op.sums, name, "sums");
  require_pointer(op.dout, name, "dout");
  require_pointer(op.mean, name, "mean");
  require_pointer(op.rstd, name, "rstd");
  const auto inverse_n = static_cast<float>(1 / (double(op.rows) * op.parts));
  by_width(op.dtype, op.C, [&]<class T, int width>() {
    launch<batchnorm_backward<T, width>>(grid_of<width>(chip_, op.rows, op.C),
                                         Stripe<width>::threads, 0, cuda_stream(stream), op,
                                         inverse_n);
  });
}

}  // namespace bv::BAREVISION_GPU
