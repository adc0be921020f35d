// Operations still to be written on this device.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"

namespace bv::BAREVISION_ISA {

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
size_t CpuKernels::workspace_bytes(const BatchNormBackwardSums&) { return 0; }

}  // namespace bv::BAREVISION_ISA
