#include "bench/ceilings.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace bv {
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

double copy_rate(Backend& backend) {
  constexpr size_t bytes = size_t{256} << 20;  // beyond every cache
  const DeviceMemory from(backend, bytes), to(backend, bytes);
  copy_in_parallel(from.data(), to.data(), bytes);  // its pages exist from here on
  const Timing t = measure(backend, 0.5, [&] { copy_in_parallel(to.data(), from.data(), bytes); });
  return 2.0 * double(bytes) / t.median;
}

// oneDNN's plain matrix product of n x n matrices, and the same as our linear layer, which uses its
// primitives: either may be the faster.
double product_rate(Backend& backend, int n, bool plain) {
  const size_t count = size_t(n) * size_t(n);
  const DeviceMemory a(backend, 4 * count), b(backend, 4 * count), c(backend, 4 * count);
  std::fill_n(a.data<float>(), count, 0.5f), std::fill_n(b.data<float>(), count, 0.25f);
  LinearForward op{.out = c.data(), .inp = a.data(), .weight = b.data(), .M = n, .N = n, .K = n};
  const DeviceMemory workspace(backend, backend.kernels().workspace_bytes(op));
  op.workspace = workspace.data();
  const Timing t = measure(backend, 0.2, [&] {
    if (!plain) return backend.kernels().run(op, nullptr);
    if (dnnl_sgemm('N', 'N', n, n, n, 1, a.data<float>(), n, b.data<float>(), n, 0, c.data<float>(),
                   n) != dnnl_success)
      throw std::runtime_error("dnnl_sgemm failed");
  });
  return 2.0 * n * double(count) / t.median;
}

}  // namespace

Timing measure(Backend& backend, double seconds, const std::function<void()>& run) {
  for (int i = 0; i < 2; ++i) run();
  backend.synchronize(nullptr);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (times.size() < 5 || (seconds_since(begin) < seconds && times.size() < 1000)) {
    const Clock::time_point start = Clock::now();
    run();
    backend.synchronize(nullptr);
    times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return {times[times.size() / 2], int(times.size())};
}

Ceilings measure_cpu_ceilings(Backend& backend) {
  Ceilings c{.copy_bytes_per_second = copy_rate(backend), .product_flops_per_second = 0};
  for (const int n : {1024, 1536, 2048})
    for (const bool plain : {true, false}) {
      const double rate = product_rate(backend, n, plain);
      if (rate <= c.product_flops_per_second) continue;
      c.product_flops_per_second = rate;
      c.product = std::string(plain ? "sgemm" : "linear") + " of " + std::to_string(n) + "^3";
    }
  return c;
}

}  // namespace bv
