// Convolutions by cuDNN (kernels/cuda/conv_cudnn.h), and what cuDNN lacks: moments, computed by
// column_moments; `add`, copied to dinp, to which cuDNN then adds; an fp32 weight gradient of
// 16-bit operands, widened from cuDNN's 16-bit result.
#include <algorithm>

#include "kernels/conv/conv.cuh"
#include "kernels/cuda/conv_cudnn.h"

namespace bv::BAREVISION_GPU {
namespace {

using Direction = ConvCudnn::Direction;
constexpr int threads = 256;

template <class T>
__global__ void __launch_bounds__(threads)
    widen(float* to, const T* from, size_t count, bool accumulate) {
  await_kernel_ahead();
  const size_t i = size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < count) to[i] = to_float(from[i]) + (accumulate ? to[i] : 0.0f);
}

size_t bytes_of_weight(const ConvBackwardWeight& op) {
  return round_up(static_cast<size_t>(op.shape.weight_count()) * size_of(op.dtype), 256);
}

int rows_of(const ConvShape& s) { return s.N * s.P() * s.Q(); }

}  // namespace

size_t conv_cudnn_bytes(ConvCudnn& cudnn, const DeviceProps& props, const ConvForward& op) {
  return std::max(cudnn.workspace_bytes(Direction::forward, op.dtype, op.shape),
                  column_moments_bytes(props, op.dtype, rows_of(op.shape), op.shape.K));
}
void conv_cudnn(ConvCudnn& cudnn, const DeviceProps& props, const ConvForward& op,
                cudaStream_t stream) {
  cudnn.run(op, stream);
  if (op.batch_stats)
    column_moments(props,
                   {.moments = op.batch_stats,
                    .workspace = op.workspace,
                    .inp = op.out,
                    .rows = rows_of(op.shape),
                    .C = op.shape.K,
                    .dtype = op.dtype},
                   stream);
}

size_t conv_cudnn_bytes(ConvCudnn& cudnn, const DeviceProps&, const ConvBackwardInput& op) {
  return cudnn.workspace_bytes(Direction::backward_input, op.dtype, op.shape);
}
void conv_cudnn(ConvCudnn& cudnn, const DeviceProps&, const ConvBackwardInput& op,
                cudaStream_t stream) {
  if (op.add && op.add != op.dinp)
    check(cudaMemcpyAsync(op.dinp, op.add,
                          static_cast<size_t>(op.shape.inp_count()) * size_of(op.dtype),
                          cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
  cudnn.run(op, stream);
}

size_t conv_cudnn_bytes(ConvCudnn& cudnn, const DeviceProps&, const ConvBackwardWeight& op) {
  return cudnn.workspace_bytes(Direction::backward_weight, op.dtype, op.shape) +
         (op.dtype == DType::fp32 ? 0 : bytes_of_weight(op));
}
void conv_cudnn(ConvCudnn& cudnn, const DeviceProps&, const ConvBackwardWeight& op,
                cudaStream_t stream) {
  if (op.dtype == DType::fp32)
    return cudnn.run(op, op.dweight, op.accumulate, op.workspace, stream);
  char* rest = static_cast<char*>(op.workspace) + bytes_of_weight(op);
  cudnn.run(op, op.workspace, false, rest, stream);
  const auto count = static_cast<size_t>(op.shape.weight_count());
  const auto grid = static_cast<unsigned>(ceil_div(count, threads));
  by_16_bits(op.dtype, [&]<class T>() {
    launch<widen<T>>(grid, threads, 0, stream, op.dweight, static_cast<const T*>(op.workspace),
                     count, op.accumulate);
  });
}

}  // namespace bv::BAREVISION_GPU
