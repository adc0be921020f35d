// Device and host memory of a run, allocated once before the first step.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace bv {

// Rounds up to the alignment of planned memory.
constexpr size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

inline DeviceMemory zeroed_memory(Backend& backend, size_t bytes) {
  DeviceMemory memory(backend, bytes);
  if (bytes) backend.zero(memory.data(), bytes, nullptr);
  return memory;
}

// Pinned host memory, which copies fastest to and from the device.
inline std::shared_ptr<void> host_memory(Backend& backend, size_t bytes) {
  return {backend.allocate_host(bytes), [&backend](void* p) { backend.release_host(p); }};
}

}  // namespace bv
