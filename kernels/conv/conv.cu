// Convolution: chooses the algorithm (conv.cuh) and validates the arguments.
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

// In order of preference: the first algorithm that takes a convolution computes it.
constexpr Algorithm algorithms[] = {
    {.on_tensor_cores = true,
     .takes = conv_implicit_gemm_takes,
     .forward = {conv_implicit_gemm_bytes, conv_implicit_gemm},
     .backward_input = {conv_implicit_gemm_bytes, conv_implicit_gemm},
     .backward_weight = {conv_weight_gradient_bytes, conv_weight_gradient}},
    {.on_tensor_cores = true,
     .takes = conv_stem_takes,
     .forward = {conv_stem_forward_bytes, conv_stem_forward},
     .backward_input = {no_workspace, conv_general_backward_input},
     .backward_weight = {conv_stem_backward_weight_bytes, conv_stem_backward_weight}},
    {.on_tensor_cores = false,
     .takes = [](const ConvShape&, DType) { return true; },
     .forward = {conv_general_forward_bytes, conv_general_forward},
     .backward_input = {no_workspace, conv_general_backward_input},
     .backward_weight = {conv_general_backward_weight_bytes, conv_general_backward_weight}},
};

template <class Op>
const Direction<Op>& algorithm(const DeviceProps& props, const Op& op) {
  const bool has_mma = op.dtype == DType::fp16 || (op.dtype == DType::bf16 && props.arch >= 80);
  const Algorithm* a = algorithms;
  while ((a->on_tensor_cores && !has_mma) || !a->takes(op.shape, op.dtype)) ++a;
  return a->of(op);
}

// With --conv cudnn, cuDNN computes all of them.
template <class Op>
size_t bytes(const DeviceProps& props, ConvCudnn* cudnn, const Op& op) {
  return cudnn ? conv_cudnn_bytes(*cudnn, props, op)
               : algorithm(props, op).workspace_bytes(props, op);
}
template <class Op>
void compute(const DeviceProps& props, ConvCudnn* cudnn, const Op& op, cudaStream_t stream) {
  if (cudnn) return conv_cudnn(*cudnn, props, op, stream);
  algorithm(props, op).run(props, op, stream);
}

void check(const ConvShape& s, const char* op) {
  require(s.N > 0 && s.H > 0 && s.W > 0 && s.C > 0 && s.K > 0, op,
          "N, H, W, C, K: must be positive");
  require(s.R > 0 && s.S > 0 && s.stride > 0 && s.padding >= 0, op,
          "R, S, stride: must be positive, padding not negative");
  require(s.groups > 0 && s.C % s.groups == 0, op, "C: %d channels in %d groups", s.C, s.groups);
  require(s.K % s.groups == 0, op, "K: %d channels in %d groups", s.K, s.groups);
  constexpr double most = 1 << 30;
  const double H = s.H + 2.0 * s.padding, W = s.W + 2.0 * s.padding;
  require(H >= s.R && W >= s.S, op,
          "H, W: an image of %d x %d with padding %d is smaller than the filter", s.H, s.W,
          s.padding);
  require(s.stride < 256, op, "stride: %d is more than 255", s.stride);
  require(s.N * H * W <= most, op, "N, H, W: more positions than an index holds");
  require(s.weight_count() <= most, op, "K, R, S, C: a weight of more than 2^30 elements");
}

}  // namespace

size_t CudaKernels::workspace_bytes(const ConvForward& op) {
  check(op.shape, "ConvForward");
  return bytes(props_, cudnn_.get(), op);
}
size_t CudaKernels::workspace_bytes(const ConvBackwardInput& op) {
  check(op.shape, "ConvBackwardInput");
  return bytes(props_, cudnn_.get(), op);
}
size_t CudaKernels::workspace_bytes(const ConvBackwardWeight& op) {
  check(op.shape, "ConvBackwardWeight");
  return bytes(props_, cudnn_.get(), op);
}

void CudaKernels::run(const ConvForward& op, Stream stream) {
  constexpr const char* name = "ConvForward";
  check(op.shape, name);
  require_pointer(op.out, name, "out");
  require_pointer(op.inp, name, "inp");
  require_pointer(op.weight, name, "weight");
  if (op.moments) require_pointer(op.moments, name, "moments");
  compute(props_, cudnn_.get(), op, cuda_stream(stream));
}

void CudaKernels::run(const ConvBackwardInput& op, Stream stream) {
  constexpr const char* name = "ConvBackwardInput";
  check(op.shape, name);
  require_pointer(op.dinp, name, "dinp");
  require_pointer(op.dout, name, "dout");
  require_pointer(op.weight, name, "weight");
  if (op.add) require_pointer(op.add, name, "add");
  compute(props_, cudnn_.get(), op, cuda_stream(stream));
}

void CudaKernels::run(const ConvBackwardWeight& op, Stream stream) {
  constexpr const char* name = "ConvBackwardWeight";
  check(op.shape, name);
  require_pointer(op.dweight, name, "dweight");
  require_pointer(op.dout, name, "dout");
  require_pointer(op.inp, name, "inp");
  compute(props_, cudnn_.get(), op, cuda_stream(stream));
}

}  // namespace bv::BAREVISION_GPU
