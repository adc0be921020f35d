// A device as the bench sees it: memory, kernels, measured ceilings, and the timing of runs.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace bv::bench {

struct Timing {
  double median;  // seconds per run
  int runs;
};

// The measured ceilings of a roofline.
struct Ceilings {
  double copy_bytes_per_second;  // read and written together
  double product_flops_per_second;
  std::string product;  // the product that reached this rate
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual std::string describe() const = 0;
  // Lines that name the chosen algorithm of each operation that has several, and the reason.
  virtual std::string choices() const { return ""; }
  virtual bool supports(DType) const = 0;
  virtual int usual_batch() const = 0;
  virtual Kernels& kernels() = 0;
  // Bytes of other data that runs must touch before a run's own data is evicted from the cache; 0:
  // runs may find their data in the cache.
  virtual size_t cache_bytes() const = 0;

  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;  // synchronous

  virtual Ceilings ceilings(DType) = 0;
  // Calls run(0), run(1) ... for `seconds`.
  virtual Timing measure(double seconds, const std::function<void(int)>& run) = 0;
};

// The CPU, with all OpenMP threads.
std::unique_ptr<BenchDevice> make_cpu_bench_device();

}  // namespace bv::bench

namespace bv::cuda_gpu {
// The current GPU. Throws std::runtime_error if there is none.
std::unique_ptr<bench::BenchDevice> make_bench_device(KernelSet);
}  // namespace bv::cuda_gpu
