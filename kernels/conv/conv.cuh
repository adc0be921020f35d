// The algorithms that compute a convolution on a GPU, one per file; conv.cu chooses one.
// For each direction that it computes, an algorithm has a function that launches the kernels and,
// if they need a workspace, one that returns its size. Callers have checked shapes and pointers.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/moments.cuh"

namespace bv::BAREVISION_GPU {

// conv_implicit_gemm.cu: implicit matrix products on tensor cores. 16 bits, C and K multiples of 8;
// one group, or C = K in groups of 4, 8, 16 or 32 channels.
bool conv_implicit_gemm_takes(const ConvShape&, DType);
size_t conv_implicit_gemm_bytes(const DeviceProps&, const ConvForward&);
size_t conv_implicit_gemm_bytes(const DeviceProps&, const ConvBackwardInput&);
size_t conv_implicit_gemm_bytes(const DeviceProps&, const ConvBackwardInputSums&);
void conv_implicit_gemm(const DeviceProps&, const ConvForward&, cudaStream_t);
void conv_implicit_gemm(const DeviceProps&, const ConvBackwardInput&, cudaStream_t);
void conv_implicit_gemm(const DeviceProps&, const ConvBackwardInputSums&, cudaStream_t);

// conv_weight_gradient.cu: the weight gradient on tensor cores; the same shapes.
size_t conv_weight_gradient_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_weight_gradient(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_stem.cu: a first layer with 3 input channels on tensor cores, forward and weight gradient.
// 16 bits, one group, K a multiple of 8, any filter up to 7 x 7.
bool conv_stem_takes(const ConvShape&, DType);
size_t conv_stem_forward_bytes(const DeviceProps&, const ConvForward&);
void conv_stem_forward(const DeviceProps&, const ConvForward&, cudaStream_t);
size_t conv_stem_backward_weight_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_stem_backward_weight(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_direct.cu: every shape and dtype, groups included, by plain FMA.
size_t conv_direct_forward_bytes(const DeviceProps&, const ConvForward&);
void conv_direct_forward(const DeviceProps&, const ConvForward&, cudaStream_t);
void conv_direct_backward_input(const DeviceProps&, const ConvBackwardInput&, cudaStream_t);
size_t conv_direct_backward_weight_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_direct_backward_weight(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_cudnn.cu: every shape and dtype, by cuDNN.
size_t conv_cudnn_bytes(ConvCudnn&, const DeviceProps&, const ConvForward&);
size_t conv_cudnn_bytes(ConvCudnn&, const DeviceProps&, const ConvBackwardInput&);
size_t conv_cudnn_bytes(ConvCudnn&, const DeviceProps&, const ConvBackwardWeight&);
void conv_cudnn(ConvCudnn&, const DeviceProps&, const ConvForward&, cudaStream_t);
void conv_cudnn(ConvCudnn&, const DeviceProps&, const ConvBackwardInput&, cudaStream_t);
void conv_cudnn(ConvCudnn&, const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

}  // namespace bv::BAREVISION_GPU
