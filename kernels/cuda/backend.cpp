#include "kernels/cuda/backend.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/cuda/owner.h"

namespace bv::BAREVISION_GPU {
namespace {

// Doesn't synchronise with the legacy default stream.
struct OwnedStream : Owner<cudaStream_t, cudaStreamDestroy> {
  explicit OwnedStream(int priority) {
    check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
  }
};

// The bytes of this process's allocations on the device.
class Held {
 public:
  void add(const void* address, size_t bytes) {
    sizes_[address] = bytes;
    peak_ = std::max(peak_, now_ += bytes);
  }
  void remove(const void* address) {
    const auto found = sizes_.find(address);
    if (found == sizes_.end()) return;  // null
    now_ -= found->second;
    sizes_.erase(found);
  }
  size_t peak() const { return peak_; }

 private:
  std::unordered_map<const void*, size_t> sizes_;
  size_t now_ = 0, peak_ = 0;
};

// Work that a CUDA graph replays. The first replay() runs it directly, so that libraries
// initialise, which is forbidden during a capture; the second captures it.
class GraphRecording final : public Recording {
 public:
  GraphRecording(cudaStream_t stream, std::function<void()> issue)
      : Recording(std::move(issue)), stream_(stream) {}

  void replay() override {
    if (!issued_) {
      issued_ = true;
      return issue_();
    }
    if (!executable_.handle) capture();
    check(cudaGraphLaunch(executable_.handle, stream_), "cudaGraphLaunch");
  }
  int nodes() const override { return static_cast<int>(nodes_); }

 private:
  void capture() {
    // Thread-local: loader threads may use CUDA during the capture.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    Owner<cudaGraph_t, cudaGraphDestroy> graph;
    try {
      issue_();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph.handle);
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph.handle), "cudaStreamEndCapture");
    check(cudaGraphGetNodes(graph.handle, nullptr, &nodes_), "cudaGraphGetNodes");
    // Without the flag all nodes run at the priority of the stream that the graph is launched into,
    // and collectives queue behind the kernels that they should overlap with.
    check(cudaGraphInstantiate(&executable_.handle, graph.handle,
                               cudaGraphInstantiateFlagUseNodePriority),
          "cudaGraphInstantiate");
  }

  cudaStream_t stream_;
  bool issued_ = false;
  Owner<cudaGraphExec_t, cudaGraphExecDestroy> executable_;
  size_t nodes_ = 0;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const GpuOptions& options)
      : device_(select(options.device)),
        arch_(compute_capability()),
        graphs_(options.graphs),
        compute_(0),
        upload_(0),
        kernels_(make_cuda_kernels(reinterpret_cast<Stream>(compute_.handle), options.kernels,
                                   options.collectives)) {}

  std::string describe() const override {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
    return std::string(properties.name) + ", " +
           std::to_string((properties.totalGlobalMem + (size_t{1} << 29)) >> 30) + " GiB, sm_" +
           std::to_string(arch_) + (graphs_ ? "" : ", without graphs");
  }
  bool supports(DType dtype) const override { return dtype != DType::bf16 || arch_ >= 80; }
  Kernels& kernels() override { return *kernels_; }

  void* allocate(size_t bytes) override {
    void* address = nullptr;
    check(cudaMalloc(&address, bytes),
          ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
    held_.add(address, bytes);
    return address;
  }
  void release(void* address) override {
    held_.remove(address);
    check(cudaFree(address), "cudaFree");
  }
  void* allocate_host(size_t bytes) override {
    void* address = nullptr;
    check(cudaMallocHost(&address, bytes),
          ("cudaMallocHost of " + std::to_string(bytes) + " bytes").c_str());
    return address;
  }
  void release_host(void* address) override { check(cudaFreeHost(address), "cudaFreeHost"); }
  // Leaves memory for later allocations: modules at their first launch, NCCL's buffers at the first
  // collective, graphs, local memory.
  size_t memory_limit() const override {
    const auto [free, total] = memory_info();
    const size_t rest = std::max(size_t{1} << 30, total / 50);
    return free - std::min(free, rest);
  }
  std::optional<DeviceMemoryUse> memory_use() const override {
    const auto [free, total] = memory_info();
    return DeviceMemoryUse{.used = total - free, .peak = held_.peak()};
  }

  void to_device(void* device, const void* host, size_t bytes, Stream stream) override {
    copy(device, host, bytes, cudaMemcpyHostToDevice, stream);
  }
  void to_host(void* host, const void* device, size_t bytes, Stream stream) override {
    copy(host, device, bytes, cudaMemcpyDeviceToHost, stream);
  }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  void zero(void* device, size_t bytes, Stream stream) override {
    if (bytes) check(cudaMemsetAsync(device, 0, bytes, stream_of(stream)), "cudaMemsetAsync");
  }

  Stream communication_stream(int channel) override {
    while (communication_.size() <= static_cast<size_t>(channel)) communication_.emplace_back(-1);
    return reinterpret_cast<Stream>(communication_[static_cast<size_t>(channel)].handle);
  }
  Stream upload_stream() override { return reinterpret_cast<Stream>(upload_.handle); }
  // A graph may call `work` many times, so captured work is kept until the backend is destroyed.
  void call_on_host(Stream stream, std::function<void()> work) override {
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
    auto kept = std::make_unique<HostWork>(std::move(work));
    const bool once = status == cudaStreamCaptureStatusNone;
    check(cudaLaunchHostFunc(stream_of(stream), once ? run_once : run_on_host, kept.get()),
          "cudaLaunchHostFunc");
    if (once)
      kept.release();  // run_once deletes it
    else
      host_work_.push_back(std::move(kept));
  }
  Event create_event() override {
    cudaEvent_t& event = events_.emplace_back().handle;
    // The host thread sleeps while it waits, so that the loader can use its core.
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
          "cudaEventCreateWithFlags");
    return reinterpret_cast<Event>(event);
  }
  void record(Event event, Stream stream) override {
    check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  }
  void wait(Stream stream, Event event) override {
    check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
  }
  void synchronize(Stream stream) override {
    waiting([&] { return cudaStreamSynchronize(stream_of(stream)); });
  }
  void host_wait(Event event) override {
    waiting([&] { return cudaEventSynchronize(event_of(event)); });
  }
  void on_wait(std::function<void(bool)> listener) override { on_wait_ = std::move(listener); }
  Stream compute_stream() override { return reinterpret_cast<Stream>(compute_.handle); }
  std::unique_ptr<Recording> recording(std::function<void()> issue) override {
    if (!graphs_) return Backend::recording(std::move(issue));
    return std::make_unique<GraphRecording>(compute_.handle, std::move(issue));
  }

 private:
  static int select(int device) {
    check(cudaSetDevice(device), ("GPU " + std::to_string(device)).c_str());
    return device;
  }
  struct MemoryInfo {
    size_t free, total;
  };
  static MemoryInfo memory_info() {
    MemoryInfo info{};
    check(cudaMemGetInfo(&info.free, &info.total), "cudaMemGetInfo");
    return info;
  }
  using HostWork = std::function<void()>;
  static void run_once(void* work) noexcept {
    const std::unique_ptr<HostWork> owned(static_cast<HostWork*>(work));
    run_on_host(work);
  }
  // No caller on the driver's thread could catch an exception.
  static void run_on_host(void* work) noexcept {
    try {
      (*static_cast<HostWork*>(work))();
    } catch (const std::exception& e) {
      print_error_line(std::string("a host function of a stream failed: ") + e.what());
      _exit(1);
    }
  }
  template <class F>
  void waiting(F wait) {
    if (on_wait_) on_wait_(true);
    const cudaError_t error = wait();
    if (on_wait_) on_wait_(false);
    check(error, "the device");
  }
  static cudaEvent_t event_of(Event event) { return reinterpret_cast<cudaEvent_t>(event); }
  cudaStream_t stream_of(Stream stream) const {
    return stream ? reinterpret_cast<cudaStream_t>(stream) : compute_.handle;
  }
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream stream) {
    if (bytes) check(cudaMemcpyAsync(to, from, bytes, kind, stream_of(stream)), "cudaMemcpyAsync");
  }

  int device_, arch_;
  bool graphs_;
  Held held_;
  OwnedStream compute_, upload_;
  std::deque<OwnedStream> communication_;  // by channel
  std::unique_ptr<Kernels> kernels_;
  std::deque<Owner<cudaEvent_t, cudaEventDestroy>> events_;
  std::vector<std::unique_ptr<HostWork>> host_work_;  // of graphs
  std::function<void(bool)> on_wait_;
};

}  // namespace

int device_count(std::string* why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  if (why_none)
    *why_none = error == cudaSuccess                   ? "none found"
                : error == cudaErrorInsufficientDriver ? "no NVIDIA driver for CUDA 13"
                                                       : cudaGetErrorString(error);
  return 0;
}

std::unique_ptr<Backend> make_backend(const GpuOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace bv::BAREVISION_GPU
