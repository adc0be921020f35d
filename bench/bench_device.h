// A device as the bench sees it: memory, kernels, measured ceilings, and the time of a run.
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

// The ceilings of a roofline, measured.
struct Ceilings {
  double copy_bytes_per_second;  // read and written together
  double product_flops_per_second;
  std::string product;  // the product that reached it
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual std::string describe() const = 0;
  // Lines, each ended: which way operations that have several are computed here, and why.
  virtual std::string choices() const { return ""; }
  virtual bool supports(DType) const = 0;
  virtual int usual_batch() const = 0;
  virtual Kernels& kernels() = 0;
  // Bytes of other data that runs must move before a run finds its own data evicted from the cache;
  // 0: runs may find it in the cache.
  virtual size_t cache_bytes() const = 0;

  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void*) = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;  // done when it returns

  virtual Ceilings ceilings(DType) = 0;
  // Calls run(0), run(1) ... for `seconds`.
  virtual Timing measure(double seconds, const std::function<void(int)>& run) = 0;
};

// The CPU, with all of OpenMP's threads.
std::unique_ptr<BenchDevice> make_cpu_bench_device();

}  // namespace bv::bench

namespace bv::cuda_gpu {
// The current GPU. Throws std::runtime_error if there is none.
std::unique_ptr<bench::BenchDevice> make_bench_device(KernelSet);
}  // namespace bv::cuda_gpu
