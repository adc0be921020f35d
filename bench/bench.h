// A table of operations: of each its time, and what share of the device's ceilings that is.
#pragma once
#include <string>
#include <vector>

#include "bench/bench_device.h"
#include "kernels/table/recording.h"

namespace bv::bench {

struct Options {
  std::string device = "cpu";
  std::string dtype = "fp32";
  KernelSet kernels = KernelSet::fast;
  std::string model;  // none: all
  std::string filter;
  std::string json;       // a file, or none
  int batch = 0;          // 0: the device's usual one
  int image_size = 0;     // 0: the model's
  double seconds = 0.15;  // for each operation
  bool describe = false;  // the device, in a line, and no more
};

struct Result {
  std::string operation, shape;
  int per_step;  // how often a training step runs it
  Cost cost;
  double seconds;
};

class Bench {
 public:
  Bench(BenchDevice&, const Ceilings&, double seconds);  // for each operation
  ~Bench() { release(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // If the device has a cache to get past, the operation runs on several sets of tensors in turn.
  void measure(const RecordedOperation&);

  void print_head() const;
  void print_totals() const;
  // {..., "operations": [{"operation": ..., "shape": ..., "us": ..., ...}, ...]}
  std::string json() const;

 private:
  void* allocate(size_t bytes);
  void* tensor(const TensorArgument&);
  void report(const Result&);
  void release();

  BenchDevice& device_;
  Ceilings ceilings_;
  double seconds_;
  std::vector<void*> memory_;
  size_t allocated_ = 0;
  std::vector<Result> results_;
};

}  // namespace bv::bench
