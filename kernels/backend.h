// The engine's view of a device: a table of kernels, memory, streams and events.
// A backend throws std::runtime_error if the device fails, std::invalid_argument if it is misused.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/kernels.h"

namespace bv {

using Event = struct OpaqueEvent*;

// Device work that is repeated unchanged. This class enqueues it each time; on a GPU a derived
// class replays a CUDA graph.
class Recording {
 public:
  explicit Recording(std::function<void()> issue) : issue_(std::move(issue)) {}
  virtual ~Recording() = default;
  virtual void replay() { issue_(); }
  virtual int nodes() const { return 0; }  // of the captured graph; 0 if there is none yet

 protected:
  std::function<void()> issue_;
};

// Measured, in bytes.
struct DeviceMemoryUse {
  size_t used;  // by all programs on the device, libraries and the context included
  size_t peak;  // the most that this process has allocated at a time
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string describe() const = 0;  // "cpu, 2 threads, AVX-512, oneDNN 2.6.3"
  virtual bool supports(DType) const = 0;    // whether operations compute in this dtype
  // Whether RoundWeights and SumParts support the dtype, so that gradients may be sent in it.
  virtual bool converts(DType dtype) const { return supports(dtype); }
  virtual Kernels& kernels() = 0;

  // Device memory, aligned to 256 bytes, uninitialised; never called during a step.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  // Host memory that copies fastest to and from the device.
  virtual void* allocate_host(size_t bytes) { return allocate(bytes); }
  virtual void release_host(void* p) { release(p); }
  virtual size_t memory_limit() const = 0;  // bytes that all arenas together may take
  // Empty if the device's memory is the host's.
  virtual std::optional<DeviceMemoryUse> memory_use() const { return {}; }

  // Asynchronous on devices with streams: host memory must stay unchanged until the copy is done.
  virtual void to_device(void* device, const void* host, size_t bytes, Stream) = 0;
  virtual void to_host(void* host, const void* device, size_t bytes, Stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;  // on the device
  virtual void zero(void* device, size_t bytes, Stream) = 0;

  // Compute runs on stream 0 (null). Communication runs on one stream per channel, created at the
  // first call for the channel, or on stream 0 (null is returned for all channels) if the device
  // doesn't overlap the two.
  virtual Stream communication_stream(int channel = 0) = 0;
  // Runs `work` in stream order on a host thread; `work` must not use the device.
  virtual void call_on_host(Stream, std::function<void()> work) = 0;
  virtual Event create_event() = 0;  // owned by the backend
  virtual void record(Event, Stream) = 0;
  virtual void wait(Stream, Event) = 0;  // later work on the stream runs after the event
  virtual void synchronize(Stream) = 0;  // the host waits for the stream
  virtual void host_wait(Event) = 0;     // the host waits for this event
  // The listener is called with true before the host waits for the device, with false after.
  virtual void on_wait(std::function<void(bool begins)>) {}
  virtual Stream compute_stream() { return nullptr; }  // the stream that null stands for
  // The stream for uploading batches while stream 0 computes. Null if that gains nothing.
  virtual Stream upload_stream() { return nullptr; }

  // `issue` enqueues the same work each time, on stream 0 and on streams that fork from it and join
  // it by events. `issue` is called for every replay, or only for the first few.
  virtual std::unique_ptr<Recording> recording(std::function<void()> issue) {
    return std::make_unique<Recording>(std::move(issue));
  }
};

// Owns device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, size_t bytes)
      : data_(bytes ? backend.allocate(bytes) : nullptr, Release{&backend}), bytes_(bytes) {}
  template <class T = char>
  T* data() const {
    return static_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  struct Release {
    Backend* backend;
    void operator()(void* p) const { backend->release(p); }
  };
  std::unique_ptr<void, Release> data_;
  size_t bytes_ = 0;
};

}  // namespace bv
