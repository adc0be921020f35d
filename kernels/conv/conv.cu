// Convolution: chooses the algorithm (conv.cuh).
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/conv_cudnn.h"
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void conv_forward_plain(ConvForward op, int P, int Q) {
  const auto [N, H, W, C, K, R, S, stride, padding, groups] = op.shape;
  const size_t i = thread_number();
  if (i >= size_t(N) * P * Q * K) return;
  const int k = i % K, q = i / K % Q, p = i / K / Q % P, n = i / K / Q / P;
  const int group_C = C / groups, first = k / (K / groups) * group_C;
  float sum = 0;
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) {
      const int h = p * stride - padding + r, w = q * stride - padding + s;
      if (h < 0 || h >= H || w < 0 || w >= W) continue;
      const T* inp = as<T>(op.inp) + ((size_t(n) * H + h) * W + w) * C + first;
      const T* weight = as<T>(op.weight) + ((size_t(k) * R + r) * S + s) * group_C;
      for (int c = 0; c < group_C; ++c) sum += to_float(inp[c]) * to_float(weight[c]);
    }
  as<T>(op.out)[i] = from_float<T>(sum);
}

// A thread computes a channel's mean and variance.
template <class T>
__global__ void conv_batch_stats_plain(ConvForward op, size_t rows) {
  const size_t K = op.shape.K, k = thread_number();
  if (k >= K) return;
  float sum = 0, squares = 0;
  for (size_t row = 0; row < rows; ++row) sum += to_float(as<T>(op.out)[row * K + k]);
  const float mean = sum / rows;
  for (size_t row = 0; row < rows; ++row) {
    const float d = to_float(as<T>(op.out)[row * K + k]) - mean;
    squares += d * d;
  }
  op.batch_stats[k] = mean, op.batch_stats[K + k] = squares / rows;
}

template <class T>
__global__ void conv_backward_input_plain(ConvBackwardInput op, int P, int Q) {
  const auto [N, H, W, C, K, R, S, stride, padding, groups] = op.shape;
  const size_t i = thread_number();
  if (i >= size_t(N) * H * W * C) return;
  const int channel = i % C, w = i / C % W, h = i / C / W % H, n = i / C / W / H;
  const int group_C = C / groups, group_K = K / groups;
  const int c = channel % group_C, first = channel / group_C * group_K;
  float sum = op.add ? to_float(as<T>(op.add)[i]) : 0;
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s) {
      const int y = h + padding - r, x = w + padding - s;  // p stride and q stride
      if (y < 0 || y % stride != 0 || y / stride >= P) continue;
      if (x < 0 || x % stride != 0 || x / stride >= Q) continue;
      const T* dout = as<T>(op.dout) + ((size_t(n) * P + y / stride) * Q + x / stride) * K;
      for (int k = first; k < first + group_K; ++k)
        sum += to_float(dout[k]) *
               to_float(as<T>(op.weight)[((size_t(k) * R + r) * S + s) * group_C + c]);
    }
  as<T>(op.dinp)[i] = from_float<T>(sum);
}

template <class T>
__global__ void conv_backward_weight_plain(ConvBackwardWeight op, int P, int Q) {
  const auto [N, H, W, C, K, R, S, stride, padding, groups] = op.shape;
  const int group_C = C / groups;
  const size_t i = thread_number();
  if (i >= size_t(K) * R * S * group_C) return;
  const int c = i % group_C, s = i / group_C % S, r = i / group_C / S % R, k = i / group_C / S / R;
  const int channel = k / (K / groups) * group_C + c;
  float sum = 0;
  for (int n = 0; n < N; ++n)
    for (int p = 0; p < P; ++p)
      for (int q = 0; q < Q; ++q) {
        const int h = p * stride - padding + r, w = q * stride - padding + s;
        if (h < 0 || h >= H || w < 0 || w >= W) continue;
        sum += to_float(as<T>(op.dout)[((size_t(n) * P + p) * Q + q) * K + k]) *
               to_float(as<T>(op.inp)[((size_t(n) * H + h) * W + w) * C + channel]);
      }
  set_or_add(op.dweight[i], sum, op.accumulate);
}

// ---- the choice of a fast algorithm -------------------------------------------------------------

template <class Op>
struct Direction {
  size_t (*workspace_bytes)(const DeviceProps&, const Op&);
  void (*run)(const DeviceProps&, const Op&, cudaStream_t);
};

struct Algorithm {
  bool on_tensor_cores;
  bool (*takes)(const ConvShape&, DType);
  Direction<ConvForward> forward;
  Direction<ConvBackwardInput> backward_input;
  Direction<ConvBackwardWeight> backward_weight;

  const auto& of(const ConvForward&) const { return forward; }
  const auto& of(const ConvBackwardInput&) const { return backward_input; }
  const auto& of(const ConvBackwardWeight&) const { return backward_weight; }
};

size_t no_workspace(const DeviceProps&, const ConvBackwardInput&) { return 0; }

// In order of preference: the first algorithm that supports a convolution computes it.
constexpr Algorithm algorithms[] = {
    {.on_tensor_cores = true,
     .takes = conv_implicit_gemm_takes,
     .forward = {conv_implicit_gemm_bytes, conv_implicit_gemm},
     .backward_input = {conv_implicit_gemm_bytes, conv_implicit_gemm},
     .backward_weight = {conv_weight_gradient_bytes, conv_weight_gradient}},
    {.on_tensor_cores = true,
     .takes = conv_stem_takes,
     .forward = {conv_stem_forward_bytes, conv_stem_forward},
     .backward_input = {no_workspace, conv_direct_backward_input},
     .backward_weight = {conv_stem_backward_weight_bytes, conv_stem_backward_weight}},
    {.on_tensor_cores = false,
     .takes = [](const ConvShape&, DType) { return true; },
     .forward = {conv_direct_forward_bytes, conv_direct_forward},
     .backward_input = {no_workspace, conv_direct_backward_input},
     .backward_weight = {conv_direct_backward_weight_bytes, conv_direct_backward_weight}},
};

const Algorithm* choose(const DeviceProps& props, const ConvShape& shape, DType dtype) {
  const bool has_mma = dtype == DType::fp16 || (dtype == DType::bf16 && props.arch >= 80);
  const Algorithm* a = algorithms;
  while ((a->on_tensor_cores && !has_mma) || !a->takes(shape, dtype)) ++a;
  return a;
}
template <class Op>
const Direction<Op>& algorithm(const DeviceProps& props, const Op& op) {
  return choose(props, op.shape, op.dtype)->of(op);
}

}  // namespace

// With --conv cudnn, cuDNN computes all three directions.
template <class Op>
size_t CudaKernels::workspace(const Op& op) {
  return cudnn_ ? conv_cudnn_bytes(*cudnn_, props_, op)
                : algorithm(props_, op).workspace_bytes(props_, op);
}
template <class Op>
void CudaKernels::run(const Op& op, cudaStream_t stream) {
  if (cudnn_) return conv_cudnn(*cudnn_, props_, op, stream);
  algorithm(props_, op).run(props_, op, stream);
}

// The first algorithm computes batch norm's sums in its epilogue. With the other algorithms,
// batchnorm.cu computes the sums in a separate pass.
template <>
size_t CudaKernels::workspace(const BatchNormBackwardSums&);
template <>
void CudaKernels::run(const BatchNormBackwardSums&, cudaStream_t);
template <>
size_t CudaKernels::workspace(const ConvBackwardInputSums& op) {
  if (!cudnn_ && choose(props_, op.shape, op.dtype) == algorithms)
    return conv_implicit_gemm_bytes(props_, op);
  return std::max(workspace(op.input_gradient()), workspace(op.norm_sums()));
}
template <>
void CudaKernels::run(const ConvBackwardInputSums& op, cudaStream_t stream) {
  if (!cudnn_ && choose(props_, op.shape, op.dtype) == algorithms)
    return conv_implicit_gemm(props_, op, stream);
  run(op.input_gradient(), stream);
  run(op.norm_sums(), stream);
}

template size_t CudaKernels::workspace(const ConvForward&);
template size_t CudaKernels::workspace(const ConvBackwardInput&);
template size_t CudaKernels::workspace(const ConvBackwardWeight&);
template void CudaKernels::run(const ConvForward&, cudaStream_t);
template void CudaKernels::run(const ConvBackwardInput&, cudaStream_t);
template void CudaKernels::run(const ConvBackwardWeight&, cudaStream_t);

template <>
void PlainKernels::run(const ConvForward& op, cudaStream_t stream) {
  const int N = op.shape.N, P = op.shape.P(), Q = op.shape.Q(), K = op.shape.K;
  by_dtype(op.dtype, [&]<class T>() {
    const size_t rows = size_t(N) * P * Q;
    launch_each<conv_forward_plain<T>>(rows * K, stream, op, P, Q);
    if (op.batch_stats) launch_each<conv_batch_stats_plain<T>>(K, stream, op, rows);
  });
}

template <>
void PlainKernels::run(const ConvBackwardInput& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<conv_backward_input_plain<T>>(size_t(op.shape.inp_count()), stream, op,
                                              op.shape.P(), op.shape.Q());
  });
}

template <>
void PlainKernels::run(const ConvBackwardWeight& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<conv_backward_weight_plain<T>>(size_t(op.shape.weight_count()), stream, op,
                                               op.shape.P(), op.shape.Q());
  });
}

template <>
void PlainKernels::run(const BatchNormBackwardSums&, cudaStream_t);
template <>
void PlainKernels::run(const ConvBackwardInputSums& op, cudaStream_t stream) {
  run(op.input_gradient(), stream);
  run(op.norm_sums(), stream);
}

}  // namespace bv::BAREVISION_GPU
