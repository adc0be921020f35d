// Convolution (kernels.h says what): which of the ways in conv.cuh computes it, and the checks before.
// The bytes and flops that each way needs stand in its file's head.
#include "kernels/conv/conv.cuh"
#include "kernels/cuda/conv_cudnn.h"

namespace bv::BAREVISION_GPU {
namespace {

void check(const ConvShape& s, const char* op) {
  constexpr double most = 1 << 30;
  const double H = s.H + 2.0 * s.padding, W = s.W + 2.0 * s.padding;
  require(H >= s.R && W >= s.S, op,
          "H, W: an image of %d x %d with padding %d is smaller than the filter", s.H, s.W,
          s.padding);
  require(s.stride < 256, op, "stride: %d is more than 255", s.stride);
  require(s.N * H * W <= most, op, "N, H, W: more positions than an index holds");
  require(s.weight_count() <= most, op, "K, R, S, C: a weight of more than 2^30 elements");
}

enum class Way { cudnn, tensor_cores, stem, general };
Way way_of(const DeviceProps& props, const ConvShape& s, DType dtype, bool cudnn) {
  if (cudnn) return Way::cudnn;
  const bool has_mma = dtype == DType::fp16 || (dtype == DType::bf16 && props.arch >= 80);
  if (has_mma && conv_forward_takes(s, dtype)) return Way::tensor_cores;
  if (has_mma && conv_stem_takes(s, dtype)) return Way::stem;
  return Way::general;
}

}  // namespace

template <>
size_t CudaKernels::workspace(const ConvForward& op) {
  check(op.shape, "ConvForward");
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn_bytes(*cudnn_, props_, op);
    case Way::tensor_cores:
      return conv_forward_bytes(props_, op);
    case Way::stem:
      return conv_stem_forward_bytes(props_, op);
    case Way::general:
      return conv_general_forward_bytes(props_, op);
  }
  return 0;
}

template <>
void CudaKernels::run(const ConvForward& op, cudaStream_t stream) {
  constexpr const char* name = "ConvForward";
  check(op.shape, name);
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn(*cudnn_, props_, op, stream);
    case Way::tensor_cores:
      return conv_forward(props_, op, stream);
    case Way::stem:
      return conv_stem_forward(props_, op, stream);
    case Way::general:
      return conv_general_forward(props_, op, stream);
  }
}

template <>
size_t CudaKernels::workspace(const ConvBackwardInput& op) {
  check(op.shape, "ConvBackwardInput");
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn_bytes(*cudnn_, op);
    case Way::tensor_cores:
      return conv_backward_input_bytes(props_, op);
    case Way::stem:
    case Way::general:
      return 0;
  }
  return 0;
}

template <>
void CudaKernels::run(const ConvBackwardInput& op, cudaStream_t stream) {
  constexpr const char* name = "ConvBackwardInput";
  check(op.shape, name);
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn(*cudnn_, op, stream);
    case Way::tensor_cores:
      return conv_backward_input(props_, op, stream);
    case Way::stem:
    case Way::general:
      return conv_general_backward_input(op, stream);
  }
}

template <>
size_t CudaKernels::workspace(const ConvBackwardWeight& op) {
  check(op.shape, "ConvBackwardWeight");
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn_bytes(*cudnn_, op);
    case Way::tensor_cores:
      return conv_backward_weight_bytes(props_, op);
    case Way::stem:
      return conv_stem_backward_weight_bytes(props_, op);
    case Way::general:
      return conv_general_backward_weight_bytes(props_, op);
  }
  return 0;
}

template <>
void CudaKernels::run(const ConvBackwardWeight& op, cudaStream_t stream) {
  constexpr const char* name = "ConvBackwardWeight";
  check(op.shape, name);
  switch (way_of(props_, op.shape, op.dtype, cudnn_ != nullptr)) {
    case Way::cudnn:
      return conv_cudnn(*cudnn_, op, stream);
    case Way::tensor_cores:
      return conv_backward_weight(props_, op, stream);
    case Way::stem:
      return conv_stem_backward_weight(props_, op, stream);
    case Way::general:
      return conv_general_backward_weight(props_, op, stream);
  }
}

}  // namespace bv::BAREVISION_GPU
