// Compiled with the toolkit's header and with the stand-in's: both must define the same values and
// accept the same calls.
#include <cuda_runtime.h>

#include <type_traits>

namespace bv::BAREVISION_GPU {
namespace {

static_assert(cudaSuccess == 0 && cudaErrorInvalidValue == 1 && cudaErrorMemoryAllocation == 2 &&
              cudaErrorInvalidConfiguration == 9 && cudaErrorNoDevice == 100 &&
              cudaErrorInvalidDevice == 101 && cudaErrorInvalidResourceHandle == 400 &&
              cudaErrorIllegalState == 401 && cudaErrorNotReady == 600 &&
              cudaErrorIllegalAddress == 700 && cudaErrorLaunchFailure == 719 &&
              cudaErrorNotPermitted == 800 && cudaErrorNotSupported == 801 &&
              cudaErrorUnknown == 999);
static_assert(cudaErrorStreamCaptureUnsupported == 900 &&
              cudaErrorStreamCaptureInvalidated == 901 && cudaErrorStreamCaptureMerge == 902 &&
              cudaErrorStreamCaptureUnmatched == 903 && cudaErrorStreamCaptureUnjoined == 904 &&
              cudaErrorStreamCaptureIsolation == 905 && cudaErrorStreamCaptureImplicit == 906 &&
              cudaErrorCapturedEvent == 907 && cudaErrorStreamCaptureWrongThread == 908);
static_assert(cudaDevAttrMaxThreadsPerBlock == 1 && cudaDevAttrMaxSharedMemoryPerBlock == 8 &&
              cudaDevAttrWarpSize == 10 && cudaDevAttrMultiProcessorCount == 16 &&
              cudaDevAttrComputeCapabilityMajor == 75 && cudaDevAttrComputeCapabilityMinor == 76 &&
              cudaDevAttrMaxSharedMemoryPerBlockOptin == 97);
static_assert(cudaMemcpyHostToHost == 0 && cudaMemcpyHostToDevice == 1 &&
              cudaMemcpyDeviceToHost == 2 && cudaMemcpyDeviceToDevice == 3 &&
              cudaMemcpyDefault == 4);
static_assert(cudaHostAllocDefault == 0 && cudaHostAllocPortable == 1 && cudaHostAllocMapped == 2 &&
              cudaHostAllocWriteCombined == 4);
static_assert(cudaMemAttachGlobal == 1 && cudaMemAttachHost == 2 && cudaCpuDeviceId == -1);
static_assert(cudaStreamDefault == 0 && cudaStreamNonBlocking == 1 && cudaEventDefault == 0 &&
              cudaEventBlockingSync == 1 && cudaEventDisableTiming == 2);
static_assert(cudaStreamCaptureModeGlobal == 0 && cudaStreamCaptureModeThreadLocal == 1 &&
              cudaStreamCaptureModeRelaxed == 2);
static_assert(cudaStreamCaptureStatusNone == 0 && cudaStreamCaptureStatusActive == 1 &&
              cudaStreamCaptureStatusInvalidated == 2);
static_assert(cudaGraphNodeTypeKernel == 0 && cudaGraphNodeTypeMemcpy == 1 &&
              cudaGraphNodeTypeMemset == 2 && cudaGraphNodeTypeHost == 3);

static_assert(cudaGraphInstantiateFlagUseNodePriority == 8 &&
              cudaFuncAttributeMaxDynamicSharedMemorySize == 8);

// Whether an overload has exactly these parameters.
template <class... Parameters>
constexpr bool takes(std::type_identity_t<cudaError_t (*)(Parameters...)>) {
  return true;
}

[[maybe_unused]] constexpr const char* (*names[])(cudaError_t) = {cudaGetErrorName,
                                                                  cudaGetErrorString};
static_assert(takes<>(cudaGetLastError) && takes<>(cudaPeekAtLastError) &&
              takes<>(cudaDeviceSynchronize) && takes<>(cudaDeviceReset) &&
              takes<int*>(cudaGetDeviceCount) && takes<int*>(cudaGetDevice) &&
              takes<int>(cudaSetDevice) &&
              takes<int*, cudaDeviceAttr, int>(cudaDeviceGetAttribute) &&
              takes<cudaDeviceProp*, int>(cudaGetDeviceProperties) &&
              takes<const void*, cudaFuncAttribute, int>(cudaFuncSetAttribute) &&
              takes<int*, int*>(cudaDeviceGetStreamPriorityRange));
static_assert(takes<size_t*, size_t*>(cudaMemGetInfo) && takes<void**, size_t>(cudaMalloc) &&
              takes<float**, size_t>(cudaMalloc) && takes<void**, size_t>(cudaMallocHost) &&
              takes<void**, size_t, unsigned>(cudaHostAlloc) &&
              takes<void**, size_t, unsigned>(cudaMallocManaged) && takes<void*>(cudaFree) &&
              takes<void*>(cudaFreeHost) &&
              takes<void*, const void*, size_t, cudaMemcpyKind>(cudaMemcpy) &&
              takes<void*, const void*, size_t, cudaMemcpyKind, cudaStream_t>(cudaMemcpyAsync) &&
              takes<void*, int, size_t>(cudaMemset) &&
              takes<void*, int, size_t, cudaStream_t>(cudaMemsetAsync));
static_assert(takes<cudaStream_t*>(cudaStreamCreate) &&
              takes<cudaStream_t*, unsigned>(cudaStreamCreateWithFlags) &&
              takes<cudaStream_t*, unsigned, int>(cudaStreamCreateWithPriority) &&
              takes<cudaStream_t>(cudaStreamDestroy) &&
              takes<cudaStream_t>(cudaStreamSynchronize) && takes<cudaStream_t>(cudaStreamQuery) &&
              takes<cudaStream_t, cudaHostFn_t, void*>(cudaLaunchHostFunc) &&
              takes<cudaStream_t, cudaEvent_t, unsigned>(cudaStreamWaitEvent));
static_assert(takes<cudaEvent_t*>(cudaEventCreate) &&
              takes<cudaEvent_t*, unsigned>(cudaEventCreateWithFlags) &&
              takes<cudaEvent_t>(cudaEventDestroy) && takes<cudaEvent_t>(cudaEventSynchronize) &&
              takes<cudaEvent_t>(cudaEventQuery) &&
              takes<cudaEvent_t, cudaStream_t>(cudaEventRecord) &&
              takes<float*, cudaEvent_t, cudaEvent_t>(cudaEventElapsedTime));
static_assert(takes<cudaStream_t, cudaStreamCaptureMode>(cudaStreamBeginCapture) &&
              takes<cudaStream_t, cudaGraph_t*>(cudaStreamEndCapture) &&
              takes<cudaStream_t, cudaStreamCaptureStatus*>(cudaStreamIsCapturing) &&
              takes<cudaStreamCaptureMode*>(cudaThreadExchangeStreamCaptureMode) &&
              takes<cudaGraph_t, cudaGraphNode_t*, size_t*>(cudaGraphGetNodes) &&
              takes<cudaGraphNode_t, cudaGraphNodeType*>(cudaGraphNodeGetType) &&
              takes<cudaGraph_t>(cudaGraphDestroy) &&
              takes<cudaGraphExec_t*, cudaGraph_t, unsigned long long>(cudaGraphInstantiate) &&
              takes<cudaGraphExec_t, cudaStream_t>(cudaGraphUpload) &&
              takes<cudaGraphExec_t, cudaStream_t>(cudaGraphLaunch) &&
              takes<cudaGraphExec_t>(cudaGraphExecDestroy));

// Fields and default arguments.
[[maybe_unused]] void defaults(void* p, cudaStream_t s, cudaEvent_t e, cudaGraph_t g) {
  cudaMemcpyAsync(p, p, 1, cudaMemcpyDefault);
  cudaMemsetAsync(p, 0, 1);
  cudaEventRecord(e);
  cudaStreamWaitEvent(s, e);
  cudaGraphExec_t executable;
  cudaGraphInstantiate(&executable, g);
  float* floats;
  cudaMallocHost(&floats, 4);
  cudaDeviceProp d{};
  const size_t sizes[] = {d.totalGlobalMem, d.sharedMemPerBlock, d.sharedMemPerBlockOptin};
  const int numbers[] = {d.warpSize, d.maxThreadsPerBlock,  d.major,
                         d.minor,    d.multiProcessorCount, d.name[0]};
  (void)sizes, (void)numbers;
}

}  // namespace
}  // namespace bv::BAREVISION_GPU
