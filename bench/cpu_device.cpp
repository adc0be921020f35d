#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/bench_device.h"
#include "kernels/cpu/backend.h"

namespace bv::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void copy_in_parallel(char* to, const char* from, size_t bytes) {
#pragma omp parallel
  {
    const size_t threads = size_t(omp_get_num_threads()), thread = size_t(omp_get_thread_num());
    const size_t begin = bytes * thread / threads, end = bytes * (thread + 1) / threads;
    std::memcpy(to + begin, from + begin, end - begin);
  }
}

class CpuBenchDevice final : public BenchDevice {
 public:
  std::string describe() const override { return backend_->describe(); }
  bool supports(DType dtype) const override { return backend_->supports(dtype); }
  int usual_batch() const override { return 16; }
  Kernels& kernels() override { return backend_->kernels(); }
  size_t cache_bytes() const override { return 0; }

  void* allocate(size_t bytes) override { return backend_->allocate(bytes); }
  void release(void* p) override { backend_->release(p); }
  void upload(void* device, const void* host, size_t bytes) override {
    backend_->to_device(device, host, bytes, nullptr);
    backend_->synchronize(nullptr);
  }

  Ceilings ceilings(DType) override {
    Ceilings c{.copy_bytes_per_second = copy_rate(), .product_flops_per_second = 0, .product = {}};
    for (const int n : {1024, 1536, 2048})
      for (const bool plain : {true, false}) {
        const double rate = product_rate(n, plain);
        if (rate <= c.product_flops_per_second) continue;
        c.product_flops_per_second = rate;
        c.product = std::string(plain ? "sgemm" : "linear") + " of " + std::to_string(n) + "^3";
      }
    return c;
  }

  // Median of at least five runs, after two warm-up runs.
  Timing measure(double seconds, const std::function<void(int)>& run) override {
    int runs = 0;
    while (runs < 2) run(runs++);
    backend_->synchronize(nullptr);
    std::vector<double> times;
    const Clock::time_point begin = Clock::now();
    while (times.size() < 5 || (seconds_since(begin) < seconds && times.size() < 1000)) {
      const Clock::time_point start = Clock::now();
      run(runs++);
      backend_->synchronize(nullptr);
      times.push_back(seconds_since(start));
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return {times[times.size() / 2], int(times.size())};
  }

 private:
  double copy_rate() {
    constexpr size_t bytes = size_t{256} << 20;  // larger than any cache
    const DeviceMemory from(*backend_, bytes), to(*backend_, bytes);
    copy_in_parallel(from.data(), to.data(), bytes);  // touches all pages
    const Timing t = measure(0.5, [&](int) { copy_in_parallel(to.data(), from.data(), bytes); });
    return 2.0 * double(bytes) / t.median;
  }

  // Multiplies n x n matrices: by oneDNN's plain product, or by our linear layer, which uses
  // oneDNN's primitives. Either may be faster.
  double product_rate(int n, bool plain) {
    const size_t count = size_t(n) * size_t(n);
    const DeviceMemory a(*backend_, 4 * count), b(*backend_, 4 * count), c(*backend_, 4 * count);
    std::fill_n(a.data<float>(), count, 0.5f), std::fill_n(b.data<float>(), count, 0.25f);
    LinearForward op{.out = c.data(), .inp = a.data(), .weight = b.data(), .shape = {n, n, n}};
    const DeviceMemory workspace(*backend_, kernels().workspace_bytes(op));
    op.workspace = workspace.data();
    const Timing t = measure(0.2, [&](int) {
      if (!plain) return kernels().run(op, nullptr);
      if (dnnl_sgemm('N', 'N', n, n, n, 1, a.data<float>(), n, b.data<float>(), n, 0,
                     c.data<float>(), n) != dnnl_success)
        throw std::runtime_error("dnnl_sgemm failed");
    });
    return 2.0 * n * double(count) / t.median;
  }

  std::unique_ptr<Backend> backend_ = make_cpu_backend(omp_get_max_threads(), false);
};

}  // namespace

std::unique_ptr<BenchDevice> make_cpu_bench_device() { return std::make_unique<CpuBenchDevice>(); }

}  // namespace bv::bench
