// A table of operations: the time of each, and its share of the device's ceilings.
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
  std::string model;  // empty: all models
  std::string filter;
  std::string json;       // file to write; empty: no file
  int batch = 0;          // 0: the device's default
  int image_size = 0;     // 0: the model's
  double seconds = 0.15;  // per operation
  bool describe = false;  // only print a line that describes the device
};

struct Result {
  std::string operation, shape;
  int per_step;  // how often a training step runs it
  Cost cost;
  double seconds;
  bool by_hopper;  // run by a kernel made for sm_90
};

class Bench {
 public:
  Bench(BenchDevice&, const Ceilings&, double seconds);  // seconds: per operation
  ~Bench() { release(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Alternates between sets of tensors if the device has a cache, so that data comes from memory.
  void measure(const RecordedOperation&);

  void print_head() const;
  void print_totals() const;
  // {..., "operations": [{"operation": ..., "shape": ..., "us": ..., ...}, ...]}; an operation
  // that a kernel made for sm_90 runs also has "kernels": "hopper".
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
