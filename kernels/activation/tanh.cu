// tanh, in place or not:
//   out = tanh(inp),   dinp = dout (1 - out^2)
// Saved for backward: out. A thread computes a pack of 16 bytes (one element if C is not a multiple
// of a pack). There is one row per image, thousands of elements in all: only the launch limits it.
#include <math.h>

#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void tanh_forward_plain(TanhForward op) {
  const size_t i = thread_number();
  if (i >= size_t(op.shape.rows) * op.shape.C) return;
  as<T>(op.out)[i] = from_float<T>(tanhf(to_float(as<T>(op.inp)[i])));
}

template <class T>
__global__ void tanh_backward_plain(TanhBackward op) {
  const size_t i = thread_number();
  if (i >= size_t(op.shape.rows) * op.shape.C) return;
  const float out = to_float(as<T>(op.out)[i]);
  as<T>(op.dinp)[i] = from_float<T>(to_float(as<T>(op.dout)[i]) * (1 - out * out));
}

// ---- packs --------------------------------------------------------------------------------------

constexpr int threads = 256;

template <class T, int width>
__global__ void __launch_bounds__(threads) tanh_forward(TanhForward op, size_t n) {
  await_kernel_ahead();
  const size_t at = (size_t(blockIdx.x) * threads + threadIdx.x) * width;
  if (at >= n) return;
  auto x = load<width>(static_cast<const T*>(op.inp) + at);
#pragma unroll
  for (int i = 0; i < width; ++i) x.at[i] = from_float<T>(tanhf(to_float(x.at[i])));
  store(static_cast<T*>(op.out) + at, x);
}

template <class T, int width>
__global__ void __launch_bounds__(threads) tanh_backward(TanhBackward op, size_t n) {
  await_kernel_ahead();
  const size_t at = (size_t(blockIdx.x) * threads + threadIdx.x) * width;
  if (at >= n) return;
  auto d = load<width>(static_cast<const T*>(op.dout) + at);
  const auto out = load<width>(static_cast<const T*>(op.out) + at);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float y = to_float(out.at[i]);
    d.at[i] = from_float<T>(to_float(d.at[i]) * (1 - y * y));
  }
  store(static_cast<T*>(op.dinp) + at, d);
}

template <int width>
unsigned blocks(size_t n) {
  return unsigned((n - 1) / (threads * width) + 1);
}

}  // namespace

template <>
void CudaKernels::run(const TanhForward& op, cudaStream_t stream) {
  const size_t n = size_t(op.shape.rows) * op.shape.C;
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<tanh_forward<T, width>>(blocks<width>(n), threads, 0, stream, op, n);
  });
}

template <>
void CudaKernels::run(const TanhBackward& op, cudaStream_t stream) {
  const size_t n = size_t(op.shape.rows) * op.shape.C;
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<tanh_backward<T, width>>(blocks<width>(n), threads, 0, stream, op, n);
  });
}

template <>
void PlainKernels::run(const TanhForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<tanh_forward_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

template <>
void PlainKernels::run(const TanhBackward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<tanh_backward_plain<T>>(size_t(op.shape.rows) * op.shape.C, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
