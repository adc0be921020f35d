// Operations still to be written on this device.
#include "kernels/cuda/cuda_kernels.h"

namespace bv::BAREVISION_GPU {

void CudaKernels::run(const ConvForward&, Stream) {
  require(false, "ConvForward", "not on this device yet");
}
void CudaKernels::run(const ConvBackwardInput&, Stream) {
  require(false, "ConvBackwardInput", "not on this device yet");
}
void CudaKernels::run(const ConvBackwardWeight&, Stream) {
  require(false, "ConvBackwardWeight", "not on this device yet");
}
void CudaKernels::run(const BatchNormForward&, Stream) {
  require(false, "BatchNormForward", "not on this device yet");
}
void CudaKernels::run(const BatchNormEvaluate&, Stream) {
  require(false, "BatchNormEvaluate", "not on this device yet");
}
void CudaKernels::run(const BatchNormBackwardSums&, Stream) {
  require(false, "BatchNormBackwardSums", "not on this device yet");
}
void CudaKernels::run(const BatchNormBackward&, Stream) {
  require(false, "BatchNormBackward", "not on this device yet");
}
size_t CudaKernels::workspace_bytes(const ConvForward&) { return 0; }
size_t CudaKernels::workspace_bytes(const ConvBackwardInput&) { return 0; }
size_t CudaKernels::workspace_bytes(const ConvBackwardWeight&) { return 0; }
size_t CudaKernels::workspace_bytes(const BatchNormBackwardSums&) { return 0; }

}  // namespace bv::BAREVISION_GPU
