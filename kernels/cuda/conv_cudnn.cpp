#include "kernels/cuda/conv_cudnn.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/cuda/backend.h"

bool bv::BAREVISION_GPU::has_cudnn() { return BAREVISION_CUDNN; }

#if BAREVISION_CUDNN
#include <cudnn.h>

#include "kernels/cuda/owner.h"

namespace bv::BAREVISION_GPU {
namespace {

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cudnnGetErrorString(status));
}

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::fp32   ? CUDNN_DATA_FLOAT
         : dtype == DType::fp16 ? CUDNN_DATA_HALF
                                : CUDNN_DATA_BFLOAT16;
}

template <class T, auto create, auto destroy>
struct Owned : Owner<T, destroy> {
  Owned() { check(create(&this->handle), "cudnnCreate"); }
  operator T() const { return this->handle; }
};
using TensorDescriptor =
    Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    Owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvDescriptor = Owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                             cudnnDestroyConvolutionDescriptor>;

constexpr int max_algorithms = 16;
constexpr size_t small_workspace = size_t{256} << 20;
constexpr float one = 1, zero = 0;

}  // namespace

struct ConvCudnn::Handle : Owned<cudnnHandle_t, cudnnCreate, cudnnDestroy> {};

struct ConvCudnn::Plan {
  TensorDescriptor inp, out;
  FilterDescriptor weight;
  ConvDescriptor conv;
  int algorithm = 0;
  size_t workspace_bytes = 0;
};

ConvCudnn::ConvCudnn() : handle_(std::make_unique<Handle>()) {}
ConvCudnn::~ConvCudnn() = default;

ConvCudnn::Plan& ConvCudnn::plan(Direction direction, DType dtype, const ConvShape& s) {
  const auto [found, is_new] = plans_.try_emplace({int(direction), int(dtype), s.N, s.H, s.W, s.C,
                                                   s.K, s.R, s.S, s.stride, s.padding, s.groups});
  Plan& p = found->second;
  if (!is_new) return p;
  const cudnnDataType_t type = type_of(dtype);
  check(cudnnSetTensor4dDescriptor(p.inp, CUDNN_TENSOR_NHWC, type, s.N, s.C, s.H, s.W),
        "cudnnSetTensor4dDescriptor");
  check(cudnnSetTensor4dDescriptor(p.out, CUDNN_TENSOR_NHWC, type, s.N, s.K, s.P(), s.Q()),
        "cudnnSetTensor4dDescriptor");
  check(
      cudnnSetFilter4dDescriptor(p.weight, type, CUDNN_TENSOR_NHWC, s.K, s.C / s.groups, s.R, s.S),
      "cudnnSetFilter4dDescriptor");
  check(cudnnSetConvolution2dDescriptor(p.conv, s.padding, s.padding, s.stride, s.stride, 1, 1,
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  check(cudnnSetConvolutionGroupCount(p.conv, s.groups), "cudnnSetConvolutionGroupCount");
  // fp32 stays fp32: no TF32.
  check(cudnnSetConvolutionMathType(p.conv,
                                    dtype == DType::fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH),
        "cudnnSetConvolutionMathType");

  // Chooses the heuristic's first deterministic algorithm, preferably one with a small workspace:
  // some transforms need gigabytes.
  const auto choose = [&]<class Perf>(Perf, const char* call, auto get,
                                      const auto&... descriptors) {
    Perf list[max_algorithms];
    int count = 0;
    check(get(*handle_, descriptors..., max_algorithms, &count, list), call);
    const auto first = [&](size_t max_bytes) {
      return std::find_if(list, list + count, [=](const Perf& a) {
        return a.status == CUDNN_STATUS_SUCCESS && a.determinism == CUDNN_DETERMINISTIC &&
               a.memory <= max_bytes;
      });
    };
    const Perf* chosen = first(small_workspace);
    if (chosen == list + count) chosen = first(SIZE_MAX);
    if (chosen == list + count)
      throw std::runtime_error(std::string(call) + ": cuDNN has no algorithm for this convolution");
    p.algorithm = int(chosen->algo), p.workspace_bytes = chosen->memory;
  };
  if (direction == Direction::forward)
    choose(cudnnConvolutionFwdAlgoPerf_t{}, "cudnnGetConvolutionForwardAlgorithm_v7",
           cudnnGetConvolutionForwardAlgorithm_v7, p.inp, p.weight, p.conv, p.out);
  else if (direction == Direction::backward_input)
    choose(cudnnConvolutionBwdDataAlgoPerf_t{}, "cudnnGetConvolutionBackwardDataAlgorithm_v7",
           cudnnGetConvolutionBackwardDataAlgorithm_v7, p.weight, p.out, p.conv, p.inp);
  else
    choose(cudnnConvolutionBwdFilterAlgoPerf_t{}, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
           cudnnGetConvolutionBackwardFilterAlgorithm_v7, p.inp, p.out, p.conv, p.weight);
  return p;
}

size_t ConvCudnn::workspace_bytes(Direction direction, DType dtype, const ConvShape& s) {
  return plan(direction, dtype, s).workspace_bytes;
}

void ConvCudnn::run(const ConvForward& op, cudaStream_t stream) {
  const Plan& p = plan(Direction::forward, op.dtype, op.shape);
  check(cudnnSetStream(*handle_, stream), "cudnnSetStream");
  check(cudnnConvolutionForward(*handle_, &one, p.inp, op.inp, p.weight, op.weight, p.conv,
                                static_cast<cudnnConvolutionFwdAlgo_t>(p.algorithm), op.workspace,
                                p.workspace_bytes, &zero, p.out, op.out),
        "cudnnConvolutionForward");
}

void ConvCudnn::run(const ConvBackwardInput& op, cudaStream_t stream) {
  const Plan& p = plan(Direction::backward_input, op.dtype, op.shape);
  check(cudnnSetStream(*handle_, stream), "cudnnSetStream");
  check(cudnnConvolutionBackwardData(*handle_, &one, p.weight, op.weight, p.out, op.dout, p.conv,
                                     static_cast<cudnnConvolutionBwdDataAlgo_t>(p.algorithm),
                                     op.workspace, p.workspace_bytes, op.add ? &one : &zero, p.inp,
                                     op.dinp),
        "cudnnConvolutionBackwardData");
}

void ConvCudnn::run(const ConvBackwardWeight& op, void* dweight, bool add_to, void* workspace,
                    cudaStream_t stream) {
  const Plan& p = plan(Direction::backward_weight, op.dtype, op.shape);
  check(cudnnSetStream(*handle_, stream), "cudnnSetStream");
  check(cudnnConvolutionBackwardFilter(*handle_, &one, p.inp, op.inp, p.out, op.dout, p.conv,
                                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(p.algorithm),
                                       workspace, p.workspace_bytes, add_to ? &one : &zero,
                                       p.weight, dweight),
        "cudnnConvolutionBackwardFilter");
}

}  // namespace bv::BAREVISION_GPU

#else

namespace bv::BAREVISION_GPU {

struct ConvCudnn::Handle {};
struct ConvCudnn::Plan {};
ConvCudnn::ConvCudnn() {
  throw std::runtime_error("--conv cudnn: this program was built without cuDNN");
}
ConvCudnn::~ConvCudnn() = default;
size_t ConvCudnn::workspace_bytes(Direction, DType, const ConvShape&) { return 0; }
void ConvCudnn::run(const ConvForward&, cudaStream_t) {}
void ConvCudnn::run(const ConvBackwardInput&, cudaStream_t) {}
void ConvCudnn::run(const ConvBackwardWeight&, void*, bool, void*, cudaStream_t) {}

}  // namespace bv::BAREVISION_GPU

#endif
