// Device and host memory, copies between them, and fills: cudaMalloc, cudaMemcpy, cudaMemset.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "simt/device/control.h"
#include "simt/host/stream.h"
#include "simt/races/unwritten.h"
#include "simt/races/watching.h"

namespace simt::host {
namespace {

constexpr std::align_val_t pinned_alignment{4096};

std::map<const void*, size_t>& pinned() {  // under the runtime's lock
  static auto& all = *new std::map<const void*, size_t>;
  return all;
}
bool is_pinned(const void* p) {
  auto i = pinned().upper_bound(p);
  if (i == pinned().begin()) return false;
  --i;
  return static_cast<const char*>(p) < static_cast<const char*>(i->first) + i->second;
}

std::string hex(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", p);
  return text;
}
const char* side(bool device) { return device ? "device" : "host"; }

void check_end(const char* what, const void* p, size_t bytes, bool device) {
  std::string why;
  if (!p)
    why = "null";
  else if (device_memory().holds(p) != device && !device_memory().manages(p))
    why = hex(p) + ", which is " + side(!device) + " memory and not " + side(device) + " memory";
  else if (device || device_memory().holds(p))
    why = device_memory().refusal(p, bytes);
  if (!why.empty()) throw Failure{cudaErrorInvalidValue, std::string(what) + why};
}

// For reads of memory that nothing wrote.
void wrote(const void* p, size_t bytes) {
  if constexpr (watching) Unwritten::instance().wrote(p, bytes);
}
void copied(void* to, const void* from, size_t bytes) {
  if constexpr (watching) Unwritten::instance().copied(to, from, bytes);
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool to_device, from_device;

  Copy(void* to_, const void* from_, size_t bytes_, cudaMemcpyKind kind)
      : to(to_), from(from_), bytes(bytes_) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
      throw Failure{cudaErrorInvalidValue, "no such kind of copy"};
    to_device = kind == cudaMemcpyDefault ? device_memory().holds(to) : kind & 1;
    from_device = kind == cudaMemcpyDefault ? device_memory().holds(from) : kind & 2;
    if (kind == cudaMemcpyDeviceToDevice) to_device = from_device = true;
    check();
  }
  // Checked again when it runs: a graph may outlive the memory that it was captured with.
  void check() const {
    const std::string what =
        std::string("a copy from ") + side(from_device) + " to " + side(to_device) + ", ";
    check_end((what + "to ").c_str(), to, bytes, to_device);
    check_end((what + "from ").c_str(), from, bytes, from_device);
  }
  WorkPtr work() const {
    return std::make_shared<const Work>(Work{Kind::copy, "cudaMemcpyAsync",
                                             [copy = *this] {
                                               copy.check();
                                               device_memory().open_at(copy.to);
                                               device_memory().open_at(copy.from);
                                               std::memmove(copy.to, copy.from, copy.bytes);
                                               copied(copy.to, copy.from, copy.bytes);
                                             },
                                             from_device ? nullptr : static_cast<const char*>(from),
                                             bytes});
  }
};

WorkPtr set_work(void* p, int value, size_t bytes) {
  const bool device = !is_pinned(p);
  check_end("to ", p, bytes, device);
  return std::make_shared<const Work>(Work{Kind::set, "cudaMemsetAsync", [=] {
                                             check_end("to ", p, bytes, device);
                                             device_memory().open_at(p);
                                             std::memset(p, value, bytes);
                                             wrote(p, bytes);
                                           }});
}

cudaError_t allocate_host(const char* name, void** p, size_t bytes) {
  return call(name, [&](Lock&) {
    if (!p) throw Failure{cudaErrorInvalidValue, "the address of the pointer is null"};
    forbid_in_capture(name);
    *p = nullptr;
    if (!bytes) return;
    *p = ::operator new(bytes, pinned_alignment);
    std::memset(*p, 0xFF, bytes);
    pinned().emplace(*p, bytes);
  });
}

void allocate(const char* name, void** p, size_t bytes, bool managed) {
  if (!p) throw Failure{cudaErrorInvalidValue, "the address of the pointer is null"};
  forbid_in_capture(name);
  *p = nullptr;
  if (!bytes) return;
  *p = device_memory().allocate(bytes, managed);
  if (!*p)
    throw Failure{cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes, but " +
                                                 std::to_string(device_memory().allocated()) +
                                                 " of " + std::to_string(simt::memory_bytes) +
                                                 " are allocated"};
}

}  // namespace

void release_pinned() {
  for (const auto& [p, bytes] : pinned()) ::operator delete(const_cast<void*>(p), pinned_alignment);
  pinned().clear();
}

}  // namespace simt::host

using namespace simt::host;

inline namespace simt_cuda {

// ---- Memory -------------------------------------------------------------------------------------
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", [&](Lock&) {
    if (!free || !total) throw Failure{cudaErrorInvalidValue, ""};
    *total = simt::memory_bytes;
    *free = device_memory().left();
  });
}
cudaError_t cudaMalloc(void** p, size_t bytes) {
  return call("cudaMalloc", [&](Lock&) { allocate("cudaMalloc", p, bytes, false); });
}
cudaError_t cudaMallocManaged(void** p, size_t bytes, unsigned flags) {
  return call("cudaMallocManaged", [&](Lock&) {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost)
      throw Failure{cudaErrorInvalidValue, "no such flags"};
    if (!bytes) throw Failure{cudaErrorInvalidValue, "0 bytes"};
    allocate("cudaMallocManaged", p, bytes, true);
  });
}
cudaError_t cudaMemPrefetchAsync(const void* p, size_t bytes, int device, cudaStream_t stream) {
  return call("cudaMemPrefetchAsync", [&](Lock&) {
    resolve(stream);
    if (device != 0 && device != cudaCpuDeviceId)
      throw Failure{cudaErrorInvalidDevice, "no device " + std::to_string(device)};
    if (!device_memory().manages(p))
      throw Failure{cudaErrorInvalidValue, hex(p) + " is not managed memory"};
    if (const std::string why = device_memory().refusal(p, bytes); !why.empty())
      throw Failure{cudaErrorInvalidValue, why};
  });
}
cudaError_t cudaFree(void* p) {
  return call("cudaFree", [&](Lock& lock) {
    forbid_in_capture("cudaFree");
    if (!p) return;
    ++runtime().synchronizations;
    synchronize(lock, runtime().operations.pending());
    if (sticky() != cudaSuccess) return;
    if (!device_memory().release(p)) {
      const std::string why = device_memory().holds(p) ? device_memory().refusal(p, 1) : "";
      throw Failure{
          cudaErrorInvalidValue,
          why.empty() ? hex(p) + " is not where an allocation made by cudaMalloc begins" : why};
    }
  });
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return allocate_host("cudaMallocHost", p, bytes);
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  return allocate_host("cudaHostAlloc", p, bytes);
}
cudaError_t cudaFreeHost(void* p) {
  return call("cudaFreeHost", [&](Lock& lock) {
    forbid_in_capture("cudaFreeHost");
    if (!p) return;
    if (!pinned().contains(p))
      throw Failure{cudaErrorInvalidValue, hex(p) + " was not allocated by cudaMallocHost"};
    ++runtime().synchronizations;
    synchronize(lock, runtime().operations.pending());
    pinned().erase(p);
    ::operator delete(p, pinned_alignment);
  });
}

// ---- Copies -------------------------------------------------------------------------------------
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&](Lock& lock) {
    SimtStream& s = resolve(stream);
    if (!bytes) return;
    const Copy copy(to, from, bytes, kind);
    const bool on_host = !copy.to_device && !copy.from_device;
    // Poisons the destination, which the host must not read before it has waited, unless queued
    // work may still read the old content.
    if (!copy.to_device && !on_host && !s.capture &&
        !runtime().operations.reads(static_cast<char*>(to), bytes))
      std::memset(to, 0xFF, bytes);
    submit(lock, "cudaMemcpyAsync", s, copy.work());
    if (on_host && !s.capture) synchronize(lock, {s.last});  // as CUDA does
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&](Lock& lock) {
    forbid_in_capture("cudaMemcpy");
    if (!bytes) return;
    SimtStream& s = runtime().null_stream;
    const Copy copy(to, from, bytes, kind);
    if (copy.to_device && copy.from_device)  // the host does not wait
      return submit(lock, "cudaMemcpy", s, copy.work());
    ++runtime().synchronizations;
    if (copy.to_device && !is_pinned(from)) {  // waits for earlier work, but not for the copy
      synchronize(lock, dependencies(s));
      const auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
      return submit(lock, "cudaMemcpy", s,
                    std::make_shared<const Work>(Work{Kind::copy, "cudaMemcpy", [=] {
                                                        device_memory().open_at(to);
                                                        std::memcpy(to, staged->data(), bytes);
                                                        wrote(to, bytes);
                                                      }}));
    }
    submit(lock, "cudaMemcpy", s, copy.work());
    synchronize(lock, {s.last});
  });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&](Lock& lock) {
    SimtStream& s = resolve(stream);
    if (bytes) submit(lock, "cudaMemsetAsync", s, set_work(p, value, bytes));
  });
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);  // asynchronous, too
}

}  // namespace simt_cuda

// ---- Arguments of kernels -----------------------------------------------------------------------
namespace simt {
namespace {

// Whether a page is mapped at the address. Only high addresses count, which heaps, stacks and
// mappings have: a lower value may be a size.
bool is_mapped(uintptr_t address) {
  if (address < uintptr_t{1} << 46 || address >= uintptr_t{1} << 47) return false;
  unsigned char in_core;
  return mincore(reinterpret_cast<void*>(address & ~uintptr_t{4095}), 1, &in_core) == 0;
}

}  // namespace

// The label is the variable's name: x for "(void**)&x".
void label(const void* allocation, const char* expression, size_t element_bytes) {
  std::string name = expression;
  if (name.starts_with('(')) name = name.substr(std::min(name.find(')'), name.size() - 1) + 1);
  while (name.starts_with('&') || name.starts_with(' ')) name.erase(0, 1);
  device_memory().label(allocation, name, element_bytes);
}

cudaError_t check_words(const void* words, size_t bytes) {
  return call("launch", [&](Lock&) {
    uintptr_t word;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
      std::memcpy(&word, static_cast<const char*>(words) + i, sizeof word);
      const auto p = reinterpret_cast<const void*>(word);
      if (!device_memory().holds(p) && is_mapped(word) && !is_pinned(p))
        throw Failure{cudaErrorInvalidValue, "an argument points to host memory: " + hex(p) +
                                                 ", at byte " + std::to_string(i) + " of " +
                                                 std::to_string(bytes)};
    }
  });
}

}  // namespace simt
