// CUDA's runtime for g++: the calls that this project makes, with CUDA's names, values and meaning.
//
// A stream is a queue. By default its operations run as late as possible, not at the call, in an
// order chosen by simt::stream_seed (control.h): code that works only because a GPU happens to be
// fast gives a wrong result here. Where CUDA specifies nothing, the caller's worst case happens:
//   - cudaMemcpyAsync reads and writes host memory when it runs, even pageable memory; its
//     destination on the host holds 0xFF until then;
//   - new device and pinned memory holds 0xFF: NaN;
//   - the host crashes if it accesses device memory that isn't managed; if it reads managed memory
//     before it has waited for a kernel, it gets the old content;
//   - cudaStreamSynchronize(nullptr) waits for the null stream only.
// Queues proceed only while a host thread calls CUDA, or simt::let_queues_proceed() in a wait for
// something else: one that waits for a cudaLaunchHostFunc in another way waits forever.
#pragma once
#include <cstdlib>
#include <cstring>

#include "simt/device/intrinsics.h"
#include "simt/device/launch.h"
#include "simt/device/types.h"
#include "simt/include/math_functions.h"

inline namespace simt_cuda {

// ---- Errors -------------------------------------------------------------------------------------
// After a failed operation all calls return its error, as on a GPU. The strings are more specific
// than CUDA's: they describe the calling thread's last error with that code.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotPermitted = 800,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999,
};
const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// ---- Device: one, the chip that SIMT_ARCH names -------------------------------------------------
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int major;
  int minor;
  int multiProcessorCount;
  size_t sharedMemPerBlockOptin;
};
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value);
template <class... Args>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Args...), cudaFuncAttribute a, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), a, value);
}
// Finds the functions of cuda.h.
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2,
};
constexpr unsigned long long cudaEnableDefault = 0;
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** call, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* = nullptr);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();  // forgets errors, queued operations and all objects

// ---- Memory -------------------------------------------------------------------------------------
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
                   cudaHostAllocWriteCombined = 4;
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);  // total: simt::memory_bytes
cudaError_t cudaMalloc(void**, size_t bytes);
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
constexpr int cudaCpuDeviceId = -1;
cudaError_t cudaMallocManaged(void**, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaFree(void*);  // runs all queued work first
cudaError_t cudaMallocHost(void**, size_t bytes);
cudaError_t cudaHostAlloc(void**, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void*);
template <class T>
cudaError_t cudaMalloc(T** p, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(p), bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(p), bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T** p, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(p), bytes);
}

using cudaStream_t = struct SimtStream*;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t = nullptr);
// Only checks its arguments, which are those of CUDA 12: there is nothing to move.
cudaError_t cudaMemPrefetchAsync(const void*, size_t bytes, int device, cudaStream_t = nullptr);
cudaError_t cudaMemset(void*, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void*, int value, size_t bytes, cudaStream_t = nullptr);

// ---- Streams and events -------------------------------------------------------------------------
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
using cudaHostFn_t = void (*)(void* data);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void* data);

using cudaEvent_t = struct SimtEvent*;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);

// ---- Graphs -------------------------------------------------------------------------------------
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaGraphNodeType {
  cudaGraphNodeTypeKernel = 0,
  cudaGraphNodeTypeMemcpy = 1,
  cudaGraphNodeTypeMemset = 2,
  cudaGraphNodeTypeHost = 3,
};
constexpr unsigned long long cudaGraphInstantiateFlagUseNodePriority = 8;
using cudaGraph_t = struct SimtGraph*;
using cudaGraphNode_t = struct SimtNode*;
using cudaGraphExec_t = struct SimtGraphExec*;
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t, cudaGraphNodeType*);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

}  // namespace simt_cuda

namespace simt {

// Names an allocation for messages.
void label(const void* allocation, const char* expression, size_t element_bytes);

cudaError_t launch(Launch, cudaStream_t);
// Launches a kernel of a library's stand-in: `run` may access device memory, and throw
// std::runtime_error.
cudaError_t launch(std::string name, std::function<void()> run, cudaStream_t);

// Refuses arguments that contain a pointer to host memory. (Kernels may read pinned memory.)
cudaError_t check_words(const void* words, size_t bytes);

// Checks a kernel's argument: on the stand-in, a kernel could read the host's memory unnoticed.
template <class T>
cudaError_t check_argument(T argument) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !__has_builtin(__builtin_clear_padding)
  // Two adjacent sizes may look like one of AddressSanitizer's addresses: 0x6280000000c0.
  (void)argument;
  return cudaSuccess;
#else
  __builtin_clear_padding(&argument);
  return check_words(&argument, sizeof argument);
#endif
}

}  // namespace simt
