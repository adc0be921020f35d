// A device as the bench sees it: memory, kernels, what it can do at best, and the time of a run.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace bv::bench {

struct Timing {
  double median;  // seconds of a run
  int runs;
};

// The ceilings of a roofline, measured.
struct Ceilings {
  double copy_bytes_per_second;  // read and written ones together
  double product_flops_per_second;
  std::string product;  // what reached that
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual std::string describe() const = 0;
  virtual bool supports(DType) const = 0;
  virtual int usual_batch() const = 0;
  virtual Kernels& kernels() = 0;
  // Bytes that a run of others' data must move before a run finds nothing of its own in the cache;
  // 0: caches stay as the run before has left them.
  virtual size_t cache_bytes() const = 0;

  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;  // done when it returns

  virtual Ceilings ceilings(DType) = 0;
  // Calls run(0), run(1) ... until `seconds` have gone by.
  virtual Timing measure(double seconds, const std::function<void(int)>& run) = 0;
};

// The processor that this process runs on, with all of OpenMP's threads.
std::unique_ptr<BenchDevice> make_cpu_bench_device();

}  // namespace bv::bench

namespace bv::cuda_gpu {
// The current GPU. Throws std::runtime_error where there is none.
std::unique_ptr<bench::BenchDevice> make_bench_device();
}  // namespace bv::cuda_gpu
