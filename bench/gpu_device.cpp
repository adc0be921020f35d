// The GPU in the bench, CUDA only. Times come from events around a batch of launches, so they
// include neither launch latency nor host time.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/bench_device.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/make_cuda_kernels.h"
#include "kernels/cuda/matmul.h"
#include "kernels/gemm/linear_choice.h"

namespace bv::cuda_gpu {
namespace {

std::string version(int v) {
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

struct Memory {
  explicit Memory(size_t bytes) { check(cudaMalloc(&data, bytes), "cudaMalloc"); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;
};

struct Clock {
  Clock() {
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~Clock() { cudaEventDestroy(begin), cudaEventDestroy(end); }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  template <class Work>
  double seconds(Work work) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    work();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }
  cudaEvent_t begin = nullptr, end = nullptr;
};

class GpuBenchDevice final : public bench::BenchDevice {
 public:
  explicit GpuBenchDevice(KernelSet kernels)
      : properties_(current_gpu()), kernels_(make_cuda_kernels(nullptr, kernels)) {}

  std::string describe() const override {
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    const size_t blas = cublasLtGetVersion();
    return std::string(properties_.name) + ", sm_" + std::to_string(arch()) + ", " +
           std::to_string(properties_.multiProcessorCount) + " SMs, " +
           std::to_string(properties_.l2CacheSize >> 20) + " MiB of L2, CUDA " + version(runtime) +
           ", driver for " + version(driver) + ", cuBLASLt " + std::to_string(blas);
  }
  std::string choices() const override { return describe_weight_gradient_choice(arch()) + "\n"; }
  bool supports(DType dtype) const override { return dtype != DType::bf16 || arch() >= 80; }
  int usual_batch() const override { return 256; }
  Kernels& kernels() override { return *kernels_; }
  size_t cache_bytes() const override { return size_t(properties_.l2CacheSize); }

  void* allocate(size_t bytes) override {
    void* p = nullptr;
    check(cudaMalloc(&p, bytes), "cudaMalloc");
    return p;
  }
  void release(void* p) override { check(cudaFree(p), "cudaFree"); }
  void upload(void* device, const void* host, size_t bytes) override {
    check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  bench::Ceilings ceilings(DType dtype) override {
    const int n = dtype == DType::fp32 ? 4096 : 8192;
    return {.copy_bytes_per_second = copy_rate(),
            .product_flops_per_second = product_rate(n, dtype),
            .product = "cuBLASLt of " + std::to_string(n) + "^3"};
  }

  // The median of at least five samples of at least a millisecond each.
  bench::Timing measure(double seconds, const std::function<void(int)>& run) override {
    int runs = 0;
    const auto sample = [&](int n) {
      return clock_.seconds([&] {
        for (int i = 0; i < n; ++i) run(runs++);
      });
    };
    sample(3);  // warm-up: modules are loaded, clocks go up
    const double once = std::max(sample(10) / 10, 1e-7);
    const int n = int(std::clamp(std::ceil(1e-3 / once), 1.0, 1000.0));
    std::vector<double> times;
    double total = 0;
    while (times.size() < 5 || (total < seconds && times.size() < 1000)) {
      const double t = sample(n);
      total += t;
      times.push_back(t / n);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return {times[times.size() / 2], int(times.size()) * n};
  }

 private:
  int arch() const { return 10 * properties_.major + properties_.minor; }

  double copy_rate() {
    constexpr size_t bytes = size_t{1} << 30;  // larger than any cache
    const Memory from(bytes), to(bytes);
    check(cudaMemset(from.data, 0x3C, bytes), "cudaMemset");
    const bench::Timing t = measure(0.2, [&](int) {
      check(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice),
            "cudaMemcpyAsync");
    });
    return 2.0 * double(bytes) / t.median;
  }

  // c = a b^T with random numbers, since products of zeros are faster.
  double product_rate(int n, DType dtype) {
    Matmul matmul;
    const Product product{.M = n,
                          .N = n,
                          .K = n,
                          .a_transposed = false,
                          .b_transposed = true,
                          .has_bias = false,
                          .dtype = dtype,
                          .c_dtype = dtype};
    const size_t bytes = size_t(n) * size_t(n) * size_of(dtype);
    const Memory a(bytes), b(bytes), c(bytes), workspace(matmul.workspace_bytes(product));
    std::vector<uint16_t> words(bytes / 2);
    uint32_t state = 1;
    for (const Memory* m : {&a, &b}) {
      for (uint16_t& w : words) {  // either sign, normal, between 2^-7 and 2 in every dtype
        state = state * 1664525u + 1013904223u;
        w = uint16_t((state >> 16 & 0x83FF) | 0x3C00);
      }
      upload(m->data, words.data(), bytes);
    }
    const ProductArguments arguments{c.data, workspace.data, a.data, b.data, nullptr, false};
    const bench::Timing t = measure(0.2, [&](int) { matmul.run(product, arguments, nullptr); });
    return 2.0 * n * n * double(n) / t.median;
  }

  static cudaDeviceProp current_gpu() {
    int device = 0;
    const cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess)
      throw std::runtime_error(std::string("no GPU here: ") + cudaGetErrorString(error));
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return properties;
  }

  cudaDeviceProp properties_;
  std::unique_ptr<Kernels> kernels_;
  Clock clock_;
};

}  // namespace

std::unique_ptr<bench::BenchDevice> make_bench_device(KernelSet kernels) {
  return std::make_unique<GpuBenchDevice>(kernels);
}

}  // namespace bv::cuda_gpu
