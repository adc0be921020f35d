#include "kernels/cuda/cuda_kernels.h"
namespace bv::BAREVISION_GPU {
void CudaKernels::run(const LinearForward&, Stream) {
  throw std::logic_error("LinearForward: not yet");
}
void CudaKernels::run(const LinearBackwardInput&, Stream) {
  throw std::logic_error("LinearBackwardInput: not yet");
}
void CudaKernels::run(const LinearBackwardWeight&, Stream) {
  throw std::logic_error("LinearBackwardWeight: not yet");
}
size_t CudaKernels::workspace_bytes(const LinearForward&) { return 0; }
size_t CudaKernels::workspace_bytes(const LinearBackwardInput&) { return 0; }
size_t CudaKernels::workspace_bytes(const LinearBackwardWeight&) { return 0; }
void CudaKernels::run(const BiasGeluForward&, Stream) {
  throw std::logic_error("BiasGeluForward: not yet");
}
void CudaKernels::run(const BiasGeluBackward&, Stream) {
  throw std::logic_error("BiasGeluBackward: not yet");
}
size_t CudaKernels::workspace_bytes(const BiasGeluBackward&) { return 0; }
void CudaKernels::run(const LayerNormForward&, Stream) {
  throw std::logic_error("LayerNormForward: not yet");
}
void CudaKernels::run(const LayerNormBackward&, Stream) {
  throw std::logic_error("LayerNormBackward: not yet");
}
size_t CudaKernels::workspace_bytes(const LayerNormBackward&) { return 0; }
void CudaKernels::run(const AttentionForward&, Stream) {
  throw std::logic_error("AttentionForward: not yet");
}
void CudaKernels::run(const AttentionBackward&, Stream) {
  throw std::logic_error("AttentionBackward: not yet");
}
size_t CudaKernels::workspace_bytes(const AttentionBackward&) { return 0; }
void CudaKernels::run(const CrossEntropyForward&, Stream) {
  throw std::logic_error("CrossEntropyForward: not yet");
}
void CudaKernels::run(const CrossEntropyBackward&, Stream) {
  throw std::logic_error("CrossEntropyBackward: not yet");
}
void CudaKernels::run(const Metrics&, Stream) { throw std::logic_error("Metrics: not yet"); }
void CudaKernels::run(const GradientTail&, Stream) {
  throw std::logic_error("GradientTail: not yet");
}
}  // namespace bv::BAREVISION_GPU
