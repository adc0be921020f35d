// The device: its properties, synchronisation and reset.
#include <cstdio>

#include "simt/device/chip.h"
#include "simt/device/control.h"
#include "simt/host/stream.h"

namespace simt::host {

void release_pinned();

namespace {

void check_device(int device) {
  if (device != 0)
    throw Failure{cudaErrorInvalidDevice, "there is only device 0, not " + std::to_string(device)};
}

const Chip& chip_or_failure() {
  try {
    return chip();
  } catch (const std::runtime_error& e) {
    throw Failure{cudaErrorNoDevice, e.what()};
  }
}

int value_of(cudaDeviceAttr attribute) {
  const Chip& c = chip_or_failure();
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * 1024;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return simt::multiprocessors;
    case cudaDevAttrComputeCapabilityMajor:
      return c.arch / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return c.arch % 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return c.shared_bytes;
  }
  throw Failure{cudaErrorInvalidValue, "unknown attribute"};
}

}  // namespace
}  // namespace simt::host

using namespace simt::host;

inline namespace simt_cuda {

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](Lock&) { *count = 1; });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](Lock&) { *device = 0; });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](Lock&) { check_device(device); });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&](Lock&) {
    check_device(device);
    *value = value_of(attribute);
  });
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&](Lock&) {
    const simt::Chip& c = chip_or_failure();
    if (!kernel || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0)
      throw Failure{cudaErrorInvalidValue, ""};
    if (value > c.shared_bytes)
      throw Failure{cudaErrorInvalidValue, std::to_string(value) +
                                               " bytes of shared memory, but a block on " + c.name +
                                               " can have " + std::to_string(c.shared_bytes)};
    simt::set_shared_limit(kernel, static_cast<size_t>(value));
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return call("cudaGetDeviceProperties", [&](Lock&) {
    check_device(device);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "simt, a stand-in for CUDA");
    p->totalGlobalMem = simt::memory_bytes;
    p->sharedMemPerBlock = value_of(cudaDevAttrMaxSharedMemoryPerBlock);
    p->sharedMemPerBlockOptin = value_of(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p->warpSize = value_of(cudaDevAttrWarpSize);
    p->maxThreadsPerBlock = value_of(cudaDevAttrMaxThreadsPerBlock);
    p->major = value_of(cudaDevAttrComputeCapabilityMajor);
    p->minor = value_of(cudaDevAttrComputeCapabilityMinor);
    p->multiProcessorCount = simt::multiprocessors;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&](Lock&) {
    if (least) *least = 0;
    if (greatest) *greatest = greatest_priority;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [&](Lock& lock) {
    Runtime& r = runtime();
    for (const auto& c : r.captures) invalidate(*c, "cudaDeviceSynchronize");
    if (!r.captures.empty())
      throw Failure{cudaErrorStreamCaptureUnsupported,
                    "cudaDeviceSynchronize while a stream is being captured"};
    ++r.synchronizations;
    synchronize(lock, r.operations.pending());
  });
}
cudaError_t cudaDeviceReset() {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  r.operations.drop(lock);
  for (SimtStream* s : r.streams) delete s;
  for (SimtEvent* e : r.events) delete e;
  for (SimtGraph* g : r.graphs) delete g;
  for (SimtGraphExec* x : r.executables) delete x;
  r.streams.clear();
  r.events.clear();
  r.graphs.clear();
  r.executables.clear();
  r.captures.clear();
  r.left_behind.clear();
  r.null_stream.last = nullptr;
  device_memory().release_all();
  r.has_modules = false;
  release_pinned();
  simt::forget_shared_limits();
  forget_sticky();
  cudaGetLastError();  // this thread's
  return cudaSuccess;
}

}  // namespace simt_cuda
