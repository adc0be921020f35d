// Compiled with the toolkit's header and with the stand-in's: both must mean the same numbers, and
// both must take the same calls.
#include <cuda_runtime.h>

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
static_assert(cudaStreamDefault == 0 && cudaStreamNonBlocking == 1 && cudaEventDefault == 0 &&
              cudaEventBlockingSync == 1 && cudaEventDisableTiming == 2);
static_assert(cudaStreamCaptureModeGlobal == 0 && cudaStreamCaptureModeThreadLocal == 1 &&
              cudaStreamCaptureModeRelaxed == 2);
static_assert(cudaStreamCaptureStatusNone == 0 && cudaStreamCaptureStatusActive == 1 &&
              cudaStreamCaptureStatusInvalidated == 2);
static_assert(cudaGraphNodeTypeKernel == 0 && cudaGraphNodeTypeMemcpy == 1 &&
              cudaGraphNodeTypeMemset == 2 && cudaGraphNodeTypeHost == 3);

// A function of just this type, chosen among overloads.
template <class... Parameters>
using Call = cudaError_t (*)(Parameters...);

[[maybe_unused]] constexpr const char* (*names[])(cudaError_t) = {cudaGetErrorName,
                                                                  cudaGetErrorString};
[[maybe_unused]] constexpr Call<> plain[] = {cudaGetLastError, cudaPeekAtLastError,
                                             cudaDeviceSynchronize, cudaDeviceReset};
[[maybe_unused]] constexpr Call<int*> get_device[] = {cudaGetDeviceCount, cudaGetDevice};
[[maybe_unused]] constexpr Call<int> set_device = cudaSetDevice;
[[maybe_unused]] constexpr Call<int*, cudaDeviceAttr, int> attribute = cudaDeviceGetAttribute;
[[maybe_unused]] constexpr Call<cudaDeviceProp*, int> properties = cudaGetDeviceProperties;
[[maybe_unused]] constexpr Call<int*, int*> priorities = cudaDeviceGetStreamPriorityRange;

[[maybe_unused]] constexpr Call<size_t*, size_t*> memory = cudaMemGetInfo;
[[maybe_unused]] constexpr Call<void**, size_t> allocate[] = {cudaMalloc, cudaMallocHost};
[[maybe_unused]] constexpr Call<float**, size_t> allocate_floats = cudaMalloc;
[[maybe_unused]] constexpr Call<void**, size_t, unsigned> allocate_host = cudaHostAlloc;
[[maybe_unused]] constexpr Call<void*> free_memory[] = {cudaFree, cudaFreeHost};
[[maybe_unused]] constexpr Call<void*, const void*, size_t, cudaMemcpyKind> copy = cudaMemcpy;
[[maybe_unused]] constexpr Call<void*, const void*, size_t, cudaMemcpyKind, cudaStream_t>
    copy_async = cudaMemcpyAsync;
[[maybe_unused]] constexpr Call<void*, int, size_t> set = cudaMemset;
[[maybe_unused]] constexpr Call<void*, int, size_t, cudaStream_t> set_async = cudaMemsetAsync;

[[maybe_unused]] constexpr Call<cudaStream_t*> create_stream = cudaStreamCreate;
[[maybe_unused]] constexpr Call<cudaStream_t*, unsigned> create_flags = cudaStreamCreateWithFlags;
[[maybe_unused]] constexpr Call<cudaStream_t*, unsigned, int> create_priority =
    cudaStreamCreateWithPriority;
[[maybe_unused]] constexpr Call<cudaStream_t> of_stream[] = {
    cudaStreamDestroy, cudaStreamSynchronize, cudaStreamQuery};
[[maybe_unused]] constexpr Call<cudaStream_t, cudaHostFn_t, void*> host = cudaLaunchHostFunc;
[[maybe_unused]] constexpr Call<cudaEvent_t*> create_event = cudaEventCreate;
[[maybe_unused]] constexpr Call<cudaEvent_t*, unsigned> event_flags = cudaEventCreateWithFlags;
[[maybe_unused]] constexpr Call<cudaEvent_t> of_event[] = {cudaEventDestroy, cudaEventSynchronize,
                                                           cudaEventQuery};
[[maybe_unused]] constexpr Call<cudaEvent_t, cudaStream_t> record = cudaEventRecord;
[[maybe_unused]] constexpr Call<float*, cudaEvent_t, cudaEvent_t> elapsed = cudaEventElapsedTime;
[[maybe_unused]] constexpr Call<cudaStream_t, cudaEvent_t, unsigned> wait = cudaStreamWaitEvent;

[[maybe_unused]] constexpr Call<cudaStream_t, cudaStreamCaptureMode> begin = cudaStreamBeginCapture;
[[maybe_unused]] constexpr Call<cudaStream_t, cudaGraph_t*> end = cudaStreamEndCapture;
[[maybe_unused]] constexpr Call<cudaStream_t, cudaStreamCaptureStatus*> capturing =
    cudaStreamIsCapturing;
[[maybe_unused]] constexpr Call<cudaStreamCaptureMode*> mode = cudaThreadExchangeStreamCaptureMode;
[[maybe_unused]] constexpr Call<cudaGraph_t, cudaGraphNode_t*, size_t*> nodes = cudaGraphGetNodes;
[[maybe_unused]] constexpr Call<cudaGraphNode_t, cudaGraphNodeType*> type = cudaGraphNodeGetType;
[[maybe_unused]] constexpr Call<cudaGraph_t> destroy_graph = cudaGraphDestroy;
[[maybe_unused]] constexpr Call<cudaGraphExec_t*, cudaGraph_t, unsigned long long> instantiate =
    cudaGraphInstantiate;
[[maybe_unused]] constexpr Call<cudaGraphExec_t, cudaStream_t> of_executable[] = {cudaGraphUpload,
                                                                                  cudaGraphLaunch};
[[maybe_unused]] constexpr Call<cudaGraphExec_t> destroy_executable = cudaGraphExecDestroy;

// Fields, and the parameters that may be left out.
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
