// What a device is to the engine: a table of kernels, memory, streams and events, a communicator.
// A backend throws std::runtime_error where the device fails, std::invalid_argument where it is
// misused.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/kernels.h"

namespace bv {

using Event = struct OpaqueEvent*;

// Collectives over all processes of a run. Every process calls the same sequence with the same
// counts. Every rank ends with the same bits, and these do not depend on timing.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void all_reduce(float* data, size_t count, Stream) = 0;  // data = sum over the ranks
  virtual void all_reduce(double* data, size_t count, Stream) = 0;
  // data [size, count]: every rank has filled its own row and gets the others'.
  virtual void all_gather(float* data, size_t count, Stream) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, Stream) = 0;
  virtual void barrier() = 0;                    // of the hosts
  virtual double all_reduce_scalar(double) = 0;  // over the ranks, of a number of each host
  // While busy (saving, say), this process may let its peers wait longer than their timeout.
  virtual void busy(bool) = 0;
  // Why it can't go on, where that shows by itself; to be asked by any thread.
  virtual std::string failure() const { return ""; }
  // This process is about to end the run: peers that can't see that are told.
  virtual void end_run() {}
};

// Device work that is issued again and again, always the same: on a GPU a CUDA graph.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
  virtual int nodes() const = 0;  // of its graph, once it has been captured; else 0
};

// Issues the work each time.
class PlainRecording final : public Recording {
 public:
  explicit PlainRecording(std::function<void()> issue) : issue_(std::move(issue)) {}
  void replay() override { issue_(); }
  int nodes() const override { return 0; }

 private:
  std::function<void()> issue_;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string describe() const = 0;  // "cpu, 2 threads, AVX-512, oneDNN 2.6.3"
  virtual bool supports(DType) const = 0;
  virtual Kernels& kernels() = 0;

  // Device memory, at a multiple of 256 bytes, not initialised. Planned arenas only: never called
  // during a step.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  // Host memory that copies to and from the device run fastest with.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void release_host(void*) = 0;
  virtual size_t memory_limit() const = 0;  // bytes that arenas may take in all

  // Asynchronous on their stream where the device has such; host memory must stay as it is until
  // then.
  virtual void to_device(void* device, const void* host, size_t bytes, Stream) = 0;
  virtual void to_host(void* host, const void* device, size_t bytes, Stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;  // on the device
  virtual void zero(void* device, size_t bytes, Stream) = 0;

  // Stream 0 (null) computes. A stream for communication runs beside it where the machine has room
  // for that.
  virtual Stream communication_stream() = 0;
  // `work` in its turn of the stream, on some thread of the host; it must not use the device.
  virtual void call_on_host(Stream, std::function<void()> work) = 0;
  virtual Event create_event() = 0;  // owned by the backend
  virtual void record(Event, Stream) = 0;
  virtual void wait(Stream, Event) = 0;  // what comes later on the stream comes after the event
  virtual void synchronize(Stream) = 0;  // the host waits
  virtual void host_wait(Event) = 0;     // for one event alone
  // Called with true before the host waits for the device, with false after; empty: nobody listens.
  virtual void on_wait(std::function<void(bool begins)>) {}
  virtual Stream compute_stream() { return nullptr; }  // the one that null stands for
  // Batches come in on it while stream 0 computes. Null where there is nothing to be gained.
  virtual Stream upload_stream() { return nullptr; }

  // `issue` enqueues the work on stream 0, and on streams that are forked from it and joined to it
  // again by events. It is called anew for each replay, or a few times alone: it must enqueue the
  // same each time.
  virtual std::unique_ptr<Recording> recording(std::function<void()> issue) {
    return std::make_unique<PlainRecording>(std::move(issue));
  }
};

// Device memory with an owner.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Backend& backend, size_t bytes)
      : backend_(&backend), data_(bytes ? backend.allocate(bytes) : nullptr), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(backend_, other.backend_), std::swap(data_, other.data_),
        std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_) backend_->release(data_);
  }
  template <class T = char>
  T* data() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace bv
