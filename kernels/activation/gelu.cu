// The exact GELU of inp + bias:
//   x = inp + bias,   out = dropout(x Phi(x)),   dinp = dropout(dout) * (Phi(x) + x phi(x)),
//   dbias (+)= sum of dinp
// Saved for backward: inp alone. dinp =; dbias = or += per accumulate, in column_sums.cuh's two
// stages. A block covers a stripe of columns and every gridDim.y-th group of rows; a thread has one
// column, or 16 bytes' worth of columns, and loops over the rows; the columns' bias and, in
// backward, their sums of dinp stay in registers.
//
// gelu.cuh computes Phi.
//
// 4 (fp32: 8) bytes per element forward, 6 (12) backward, and 18 instructions forward, 26 backward:
// memory is the limit. erff alone would take about 25. Registers: tests/kernels/resources.txt.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/plain.cuh"
#include "kernels/gemm/dropout.cuh"
#include "kernels/gemm/gelu.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// x Phi(x) = x/2 (1 + erf(x / sqrt 2)), with erfc(-y) = 1 + erf(y), which loses no digits where erf
// is near -1.
template <class T>
__global__ void bias_gelu_forward_plain(BiasGeluForward op) {
  const size_t i = thread_number(), C = op.shape.C;
  if (i >= size_t(op.shape.rows) * C) return;
  const float x = to_float(as<T>(op.inp)[i]) + to_float(as<T>(op.bias)[i % C]);
  const float out = x / 2 * erfcf(-x / sqrtf(2));
  as<T>(op.out)[i] = from_float<T>(DroppedRow(op, i / C, C).dropped(out, i % C));
}

// dinp[i]
template <class T>
__device__ float gelu_gradient(const BiasGeluBackward& op, size_t i) {
  constexpr float pi = 3.14159265f;
  const size_t C = op.shape.C;
  const float x = to_float(as<T>(op.inp)[i]) + to_float(as<T>(op.bias)[i % C]);
  const float Phi = erfcf(-x / sqrtf(2)) / 2, phi = expf(-x * x / 2) / sqrtf(2 * pi);
  const float dout = to_float(as<T>(op.dout)[i]);
  return DroppedRow(op, i / C, C).dropped(dout, i % C) * (Phi + x * phi);
}

template <class T>
__global__ void bias_gelu_backward_plain(BiasGeluBackward op) {
  const size_t i = thread_number();
  if (i >= size_t(op.shape.rows) * op.shape.C) return;
  as<T>(op.dinp)[i] = from_float<T>(gelu_gradient<T>(op, i));
}

// A thread adds up a column.
template <class T>
__global__ void bias_gelu_backward_bias_plain(BiasGeluBackward op) {
  const size_t rows = op.shape.rows, C = op.shape.C, c = thread_number();
  if (c >= C) return;
  float sum = 0;
  for (size_t row = 0; row < rows; ++row) sum += gelu_gradient<T>(op, row * C + c);
  set_or_add(op.dbias[c], sum, op.accumulate);
}

// ---- the fast kernels ---------------------------------------------------------------------------

constexpr int blocks_per_sm = 4;

// ---- any C: one element per access --------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(256) bias_gelu_forward_any(BiasGeluForward op) {
  await_kernel_ahead();
  using S = Stripe<1>;
  const int C = op.shape.C, column = S::column();
  const unsigned rows = column < C ? op.shape.rows : 0;
  for (unsigned row = S::row(); row < rows; row += S::step()) {
    const size_t at = size_t(row) * C + column;
    const float x = to_float(static_cast<const T*>(op.inp)[at]) +
                    to_float(static_cast<const T*>(op.bias)[column]);
    static_cast<T*>(op.out)[at] = from_float<T>(DroppedRow(op, row, C).dropped(gelu(x), column));
  }
}

template <class T>
__global__ void __launch_bounds__(256) bias_gelu_backward_any(BiasGeluBackward op) {
  await_kernel_ahead();
  using S = Stripe<1>;
  const int C = op.shape.C, column = S::column();
  const unsigned rows = column < C ? op.shape.rows : 0;
  float dbias[1] = {};
  for (unsigned row = S::row(); row < rows; row += S::step()) {
    const size_t at = size_t(row) * C + column;
    const float x = to_float(static_cast<const T*>(op.inp)[at]) +
                    to_float(static_cast<const T*>(op.bias)[column]);
    const float dout = to_float(static_cast<const T*>(op.dout)[at]);
    const float d = DroppedRow(op, row, C).dropped(dout, column) * gelu_slope(x);
    static_cast<T*>(op.dinp)[at] = from_float<T>(d);
    dbias[0] += d;
  }
  S::write_sums(dbias, static_cast<float*>(op.workspace) + size_t(blockIdx.y) * C, C,
                shared<S::Shared>());
}

// ---- C in packs: 16 bytes per access, and the loads of several rows in flight together ----------
template <class T>
__device__ void load_bias(float (&bias)[Pack<T>::size], const void* from, int column, int C) {
  Pack<T> b{};
  if (column < C) b = load_pack(static_cast<const T*>(from) + column);
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) bias[i] = to_float(b.at[i]);
}

template <class T>
__global__ void __launch_bounds__(256, blocks_per_sm) bias_gelu_forward(BiasGeluForward op) {
  await_kernel_ahead();
  constexpr int width = Pack<T>::size, ahead = 4;
  using S = Stripe<width>;
  const int C = op.shape.C, column = S::column();
  if (column >= C) return;  // there are no barriers
  float bias[width];
  load_bias<T>(bias, op.bias, column, C);
  const unsigned rows = op.shape.rows;
  for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
    Pack<T> inp[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k)
      inp[k] =
          load_pack(static_cast<const T*>(op.inp) + size_t(S::row_or(row, k, rows)) * C + column);
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const unsigned r = row + k * S::step();
      float out[width];
#pragma unroll
      for (int i = 0; i < width; ++i) out[i] = gelu(to_float(inp[k].at[i]) + bias[i]);
      DroppedRow(op, r, C).drop(out, column);
      if (r < rows) store_pack(static_cast<T*>(op.out) + size_t(r) * C + column, pack_of<T>(out));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256, blocks_per_sm) bias_gelu_backward(BiasGeluBackward op) {
  await_kernel_ahead();
  constexpr int width = Pack<T>::size, ahead = 2;
  using S = Stripe<width>;
  const int C = op.shape.C, column = S::column();
  float bias[width], dbias[width] = {};
  load_bias<T>(bias, op.bias, column, C);
  const unsigned rows = column < C ? op.shape.rows : 0;
  for (unsigned row = S::row(); row < rows; row += ahead * S::step()) {
    Pack<T> dout[ahead], inp[ahead];
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const size_t at = size_t(S::row_or(row, k, rows)) * C + column;
      dout[k] = load_pack(static_cast<const T*>(op.dout) + at);
      inp[k] = load_pack(static_cast<const T*>(op.inp) + at);
    }
#pragma unroll
    for (int k = 0; k < ahead; ++k) {
      const unsigned r = row + k * S::step();
      float d[width];
      to_floats(d, dout[k]);
      DroppedRow(op, r, C).drop(d, column);
#pragma unroll
      for (int i = 0; i < width; ++i) {
        d[i] *= gelu_slope(to_float(inp[k].at[i]) + bias[i]);
        if (r < rows) dbias[i] += d[i];
      }
      if (r < rows) store_pack(static_cast<T*>(op.dinp) + size_t(r) * C + column, pack_of<T>(d));
    }
  }
  S::write_sums(dbias, static_cast<float*>(op.workspace) + size_t(blockIdx.y) * C, C,
                shared<typename S::Shared>());
}

// ---- launch -------------------------------------------------------------------------------------
template <int width>
dim3 grid(const DeviceProps& props, RowsShape shape) {
  return Stripe<width>::grid(props, blocks_per_sm, shape.rows, shape.C);
}

}  // namespace

template <>
void CudaKernels::run(const BiasGeluForward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    constexpr auto kernel = width == 1 ? bias_gelu_forward_any<T> : bias_gelu_forward<T>;
    launch<kernel>(grid<width>(props_, op.shape), Stripe<width>::threads, 0, stream, op);
  });
}

template <>
size_t CudaKernels::workspace(const BiasGeluBackward& op) {
  size_t blocks = 0;
  by_width(op.dtype, op.shape.C,
           [&]<class T, int width>() { blocks = grid<width>(props_, op.shape).y; });
  return sizeof(float) * blocks * op.shape.C;
}

template <>
void CudaKernels::run(const BiasGeluBackward& op, cudaStream_t stream) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const dim3 blocks = grid<width>(props_, op.shape);
    constexpr auto kernel = width == 1 ? bias_gelu_backward_any<T> : bias_gelu_backward<T>;
    launch<kernel>(blocks, S::threads, sizeof(typename S::Shared), stream, op);
    finish_column_sums({.out = op.dbias,
                        .partial = static_cast<const float*>(op.workspace),
                        .C = op.shape.C,
                        .blocks = int(blocks.y),
                        .accumulate = op.accumulate},
                       stream);
  });
}

template <>
void PlainKernels::run(const BiasGeluForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<bias_gelu_forward_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

template <>
void PlainKernels::run(const BiasGeluBackward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {  // dbias first: dinp may be dout itself
    launch_each<bias_gelu_backward_bias_plain<T>>(op.shape.C, stream, op);
    launch_each<bias_gelu_backward_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
