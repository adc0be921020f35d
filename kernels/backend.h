// What the engine needs of a device: a table of kernels, memory, streams and events, collectives.
// A backend throws std::runtime_error if the device fails, std::invalid_argument if it is misused.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "comm/busy.h"
#include "kernels/kernels.h"

namespace bv {

using Event = struct OpaqueEvent*;

// One message between two ranks of a communicator.
struct Transfer {
  void* data;
  size_t bytes;
  int peer;
  bool send;  // else it is received
};

// Collectives over all processes of a run, or over a group of them. Every rank makes the same calls
// in the same order with the same counts, and ends with the same bits, whatever the timing.
class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual void all_reduce(float* data, size_t count, Stream) = 0;  // data = sum over the ranks
  virtual void all_reduce(double* data, size_t count, Stream) = 0;
  // data [size, count]: each rank has filled its own row and receives the others.
  virtual void all_gather(float* data, size_t count, Stream) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, Stream) = 0;
  // data [size, count]: each rank ends with the sum over the ranks of its own row; the other rows
  // are undefined afterwards.
  virtual void reduce_scatter(float* data, size_t count, Stream) = 0;
  // All of them at once: none waits for another of the same call. Between two ranks, the n-th send
  // goes to the n-th receive. Ranks that have nothing to send or receive need not call it.
  virtual void exchange(std::span<const Transfer>, Stream) = 0;
  // A communicator for some of these ranks, with streams of its own order: every rank calls it with
  // the group that it will be in, so that the groups share out all ranks. Ranks are numbered in the
  // order of the list. It must not outlive this one.
  virtual std::unique_ptr<Communicator> group(std::span<const int> ranks) = 0;
  virtual void barrier() = 0;  // the host waits for the other hosts
  // Sums one host value per rank.
  virtual double all_reduce_scalar(double x) {
    all_reduce(&x, 1, nullptr);
    return x;
  }
  // Its calls, and those of its groups, run one after another as they were called, whatever their
  // streams; others' go on beside each other.
  virtual bool in_call_order() const { return false; }
  // While busy, this process may keep its peers waiting for ten times their timeout.
  virtual void busy(Busy) = 0;
  // A line for the user, or empty.
  virtual std::string note() const { return ""; }
  // The failure the communicator has detected, or empty. Thread-safe.
  virtual std::string failure() const { return ""; }
  // This process is about to end the run: tells the peers that cannot see it why.
  virtual void end_run(const std::string& /*why*/) {}

 private:
  int rank_, size_;
};

// Device work that is issued many times unchanged: here each time; on a GPU, as a CUDA graph.
class Recording {
 public:
  explicit Recording(std::function<void()> issue) : issue_(std::move(issue)) {}
  virtual ~Recording() = default;
  virtual void replay() { issue_(); }
  virtual int nodes() const { return 0; }  // of the captured graph; 0 if there is none yet

 protected:
  std::function<void()> issue_;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string describe() const = 0;  // "cpu, 2 threads, AVX-512, oneDNN 2.6.3"
  virtual bool supports(DType) const = 0;
  virtual Kernels& kernels() = 0;

  // Device memory, aligned to 256 bytes, uninitialised; never called during a step.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  // Host memory that copies fastest to and from the device.
  virtual void* allocate_host(size_t bytes) { return allocate(bytes); }
  virtual void release_host(void* p) { release(p); }
  virtual size_t memory_limit() const = 0;  // bytes for all arenas together, with some to spare

  // Asynchronous on devices that have streams: host memory must stay unchanged until they are done.
  virtual void to_device(void* device, const void* host, size_t bytes, Stream) = 0;
  virtual void to_host(void* host, const void* device, size_t bytes, Stream) = 0;
  virtual void copy(void* to, const void* from, size_t bytes, Stream) = 0;  // on the device
  virtual void zero(void* device, size_t bytes, Stream) = 0;

  // Compute runs on stream 0 (null); communication on its own, one for each channel, if the machine
  // has room for it: else all of them are null. A channel's is made at its first call.
  virtual Stream communication_stream(int channel = 0) = 0;
  // Runs `work` in stream order on a host thread; it must not use the device.
  virtual void call_on_host(Stream, std::function<void()> work) = 0;
  virtual Event create_event() = 0;  // owned by the backend
  virtual void record(Event, Stream) = 0;
  virtual void wait(Stream, Event) = 0;  // later work on the stream runs after the event
  virtual void synchronize(Stream) = 0;  // the host waits for the stream
  virtual void host_wait(Event) = 0;     // the host waits for this event
  // The listener is called with true before the host waits for the device, with false after.
  virtual void on_wait(std::function<void(bool begins)>) {}
  virtual Stream compute_stream() { return nullptr; }  // the stream that null stands for
  // Batches are uploaded on it while stream 0 computes. Null if that gains nothing.
  virtual Stream upload_stream() { return nullptr; }

  // `issue` enqueues the same work each time, on stream 0 and on streams that fork from it and join
  // it by events. It is called for every replay, or only for the first few.
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
