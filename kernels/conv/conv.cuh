// The ways in which a convolution is computed on a GPU, one file each; conv.cu chooses. Each says
// what it can do (16-bit elements or any, which channels) and which workspace it wants; conv.cu has
// checked shapes and pointers. Where moments are wanted, each gives them: from its own results in
// registers (merge_moments), or by column_moments.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/moments.cuh"

namespace bv::BAREVISION_GPU {

// conv_forward.cu: implicit matrix products on tensor cores. 16 bits, one group, C and K multiples
// of 8.
bool conv_forward_takes(const ConvShape&, DType);
size_t conv_forward_bytes(const DeviceProps&, const ConvForward&);
void conv_forward(const DeviceProps&, const ConvForward&, cudaStream_t);
size_t conv_backward_input_bytes(const DeviceProps&, const ConvBackwardInput&);
void conv_backward_input(const DeviceProps&, const ConvBackwardInput&, cudaStream_t);

// conv_weight.cu: the weight's gradient on tensor cores; the same shapes.
size_t conv_backward_weight_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_backward_weight(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_stem.cu: a first layer's few channels on tensor cores. 16 bits, one group, C = 3, K a
// multiple of 8, any filter up to 7 x 7.
bool conv_stem_takes(const ConvShape&, DType);
size_t conv_stem_forward_bytes(const DeviceProps&, const ConvForward&);
void conv_stem_forward(const DeviceProps&, const ConvForward&, cudaStream_t);
size_t conv_stem_backward_weight_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_stem_backward_weight(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_general.cu: every shape and dtype, groups too, by plain FMA.
size_t conv_general_forward_bytes(const DeviceProps&, const ConvForward&);
void conv_general_forward(const DeviceProps&, const ConvForward&, cudaStream_t);
void conv_general_backward_input(const ConvBackwardInput&, cudaStream_t);
size_t conv_general_backward_weight_bytes(const DeviceProps&, const ConvBackwardWeight&);
void conv_general_backward_weight(const DeviceProps&, const ConvBackwardWeight&, cudaStream_t);

// conv_cudnn.cu: every shape and dtype, by cuDNN.
size_t conv_cudnn_bytes(ConvCudnn&, const DeviceProps&, const ConvForward&);
void conv_cudnn(ConvCudnn&, const DeviceProps&, const ConvForward&, cudaStream_t);
size_t conv_cudnn_bytes(ConvCudnn&, const ConvBackwardInput&);
void conv_cudnn(ConvCudnn&, const ConvBackwardInput&, cudaStream_t);
size_t conv_cudnn_bytes(ConvCudnn&, const ConvBackwardWeight&);
void conv_cudnn(ConvCudnn&, const ConvBackwardWeight&, cudaStream_t);

}  // namespace bv::BAREVISION_GPU
