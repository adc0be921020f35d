#include "kernels/cpu/backend.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/machine.h"
#include "kernels/cpu/make_cpu_kernels.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/stream.h"

namespace bv {
namespace {

// A point in a stream's work. Work on the null stream is done as soon as it is issued.
struct CpuEvent {
  CpuStream* stream = nullptr;
  uint64_t ticket = 0;
};

CpuEvent* event_of(Event event) { return reinterpret_cast<CpuEvent*>(event); }

// Whether to use AVX-512. BAREVISION_ISA=avx2 disables it, in oneDNN as well.
bool choose_avx512() {
  const char* asked = std::getenv("BAREVISION_ISA");
  const std::string isa = asked ? asked : "";
  if (isa == "avx512" && !has_avx512())
    throw std::invalid_argument("BAREVISION_ISA=avx512: this CPU has no AVX-512");
  if (isa.empty() || isa == "avx512") return has_avx512();
  if (isa != "avx2")
    throw std::invalid_argument("BAREVISION_ISA=" + isa + " is not known; set avx2 or avx512");
  // Once oneDNN has been used, its limit can't be changed: it must already be AVX2.
  if (dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2) != dnnl_success &&
      dnnl_get_effective_cpu_isa() != dnnl_cpu_isa_avx2)
    throw std::runtime_error("oneDNN can't be limited to AVX2");
  return false;
}

// Any AVX-512 CPU can emulate bf16, more slowly than it computes in fp32; tests request this in the
// environment.
bool emulates_bf16() {
  const char* asked = std::getenv("BAREVISION_BF16");
  const std::string how = asked ? asked : "";
  if (!how.empty() && how != "emulated")
    throw std::invalid_argument("BAREVISION_BF16=" + how + " is not known; set emulated");
  return !how.empty();
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, bool overlap)
      // oneDNN computes wrong products if it gets fewer threads than it expects.
      : threads_(std::min(threads, omp_get_thread_limit())),
        overlap_(overlap),
        avx512_(choose_avx512()),
        bf16_((emulates_bf16() || has_bf16()) && avx512_),  // the environment is read in any case
        kernels_(avx512_ ? avx512::make_cpu_kernels(has_bf16() && !emulates_bf16())
                         : avx2::make_cpu_kernels(false)) {
    if (threads < 1) throw std::invalid_argument("a backend needs at least one thread");
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
  }

  std::string describe() const override {
    const dnnl_version_t* v = dnnl_version();
    return "cpu, " + std::to_string(threads_) + (threads_ == 1 ? " thread, " : " threads, ") +
           (avx512_ ? "AVX-512" : "AVX2") + ", oneDNN " + std::to_string(v->major) + "." +
           std::to_string(v->minor) + "." + std::to_string(v->patch);
  }
  bool supports(DType dtype) const override {
    return dtype == DType::fp32 || (dtype == DType::bf16 && bf16_);
  }
  bool converts(DType) const override { return true; }
  Kernels& kernels() override { return *kernels_; }

  void* allocate(size_t bytes) override { return pages_.allocate(bytes); }
  void release(void* address) override { pages_.release(address); }
  size_t memory_limit() const override { return memory_in_bytes(); }

  void to_device(void* device, const void* host, size_t bytes, Stream stream) override {
    copy(device, host, bytes, stream);
  }
  void to_host(void* host, const void* device, size_t bytes, Stream stream) override {
    copy(host, device, bytes, stream);
  }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    if (bytes > 0) run_on(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void zero(void* device, size_t bytes, Stream stream) override {
    if (bytes > 0) run_on(stream, [=] { std::memset(device, 0, bytes); });
  }

  Stream communication_stream(int channel) override {
    if (!overlap_) return nullptr;
    while (communication_.size() <= size_t(channel)) communication_.emplace_back();
    return communication_[size_t(channel)].handle();
  }
  void call_on_host(Stream stream, std::function<void()> work) override {
    run_on(stream, std::move(work));
  }
  Event create_event() override {
    events_.push_back(std::make_unique<CpuEvent>());
    return reinterpret_cast<Event>(events_.back().get());
  }
  void record(Event event, Stream stream) override {
    CpuStream* const queue = CpuStream::of(stream);
    *event_of(event) = {queue, queue ? queue->last_ticket() : 0};
  }
  void wait(Stream stream, Event event) override {
    const CpuEvent point = *event_of(event);
    // A stream needs no wait for its own work, which runs in order.
    if (!point.stream || CpuStream::of(stream) == point.stream) return;
    run_on(stream, [point] { point.stream->wait(point.ticket); });
  }
  void synchronize(Stream stream) override { synchronize_stream(stream); }
  void host_wait(Event event) override { wait(nullptr, event); }

 private:
  int threads_;
  bool overlap_, avx512_, bf16_;
  std::unique_ptr<Kernels> kernels_;
  PageAllocator pages_;
  std::vector<std::unique_ptr<CpuEvent>> events_;
  std::deque<CpuStream> communication_;  // last, destroyed first: its work uses other members
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, bool overlap) {
  return std::make_unique<CpuBackend>(threads, overlap);
}

}  // namespace bv
