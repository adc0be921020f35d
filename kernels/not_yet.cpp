// Operations still to be written on this device.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"

namespace bv::BAREVISION_ISA {

void CpuKernels::run(const ConvForward&, Stream) {
  require(false, "ConvForward", "not on this device yet");
}
void CpuKernels::run(const ConvBackwardInput&, Stream) {
  require(false, "ConvBackwardInput", "not on this device yet");
}
void CpuKernels::run(const ConvBackwardWeight&, Stream) {
  require(false, "ConvBackwardWeight", "not on this device yet");
}
void CpuKernels::run(const BatchNormForward&, Stream) {
  require(false, "BatchNormForward", "not on this device yet");
}
void CpuKernels::run(const BatchNormEvaluate&, Stream) {
  require(false, "BatchNormEvaluate", "not on this device yet");
}
void CpuKernels::run(const BatchNormBackwardSums&, Stream) {
  require(false, "BatchNormBackwardSums", "not on this device yet");
}
void CpuKernels::run(const BatchNormBackward&, Stream) {
  require(false, "BatchNormBackward", "not on this device yet");
}
void CpuKernels::run(const MaxPoolForward&, Stream) {
  require(false, "MaxPoolForward", "not on this device yet");
}
void CpuKernels::run(const MaxPoolBackward&, Stream) {
  require(false, "MaxPoolBackward", "not on this device yet");
}
void CpuKernels::run(const AveragePoolForward&, Stream) {
  require(false, "AveragePoolForward", "not on this device yet");
}
void CpuKernels::run(const AveragePoolBackward&, Stream) {
  require(false, "AveragePoolBackward", "not on this device yet");
}
void CpuKernels::run(const Scale&, Stream) { require(false, "Scale", "not on this device yet"); }
size_t CpuKernels::workspace_bytes(const ConvForward&) { return 0; }
size_t CpuKernels::workspace_bytes(const ConvBackwardInput&) { return 0; }
size_t CpuKernels::workspace_bytes(const ConvBackwardWeight&) { return 0; }
size_t CpuKernels::workspace_bytes(const BatchNormBackwardSums&) { return 0; }

}  // namespace bv::BAREVISION_ISA
