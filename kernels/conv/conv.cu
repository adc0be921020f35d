// Convolution: chooses the algorithm (conv.cuh).
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/conv_cudnn.h"

namespace bv::BAREVISION_GPU {
namespace {

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

// With --conv cudnn, cuDNN computes all of them.
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

// The first algorithm computes the sums in its epilogue; after the others, batchnorm.cu's pass
// does.
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

}  // namespace bv::BAREVISION_GPU
