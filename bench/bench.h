// A table of operations: of each its time, and what share of the device's ceilings that is.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/bench_device.h"

namespace bv::bench {

struct Options {
  std::string device = "cpu";
  std::string dtype = "fp32";
  std::string model = "vit_tiny";
  std::string filter;
  std::string json;       // a file, or none
  int batch = 0;          // 0: the device's usual one
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
  Bench(BenchDevice&, const Ceilings&, const Options&, DType);
  ~Bench() { release(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  DType dtype() const { return dtype_; }

  // Memory for an operation's arguments, random in [-1, 1) or [lowest, 1). It is released when the
  // operation has been measured.
  void* tensor(size_t elements) { return random(elements, dtype_, -1); }
  float* floats(size_t elements, float lowest = -1) {
    return static_cast<float*>(random(elements, DType::fp32, lowest));
  }
  template <class T>
  T* holding(const std::vector<T>& values) {
    void* p = allocate(values.size() * sizeof(T));
    device_.upload(p, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(p);
  }

  // Measures the operation that make() returns, on memory that it takes from this. Where the device
  // has a cache to get past, there are several of them, used in turn.
  template <class Make>
  void operator()(const std::string& name, const std::string& shape, int per_step, Make make) {
    if (name.find(options_.filter) == std::string::npos) return;
    using Op = decltype(make());
    std::vector<Op> sets;
    do {
      sets.push_back(make());
      if constexpr (requires(Op op) { op.workspace; })
        sets.back().workspace = allocate(device_.kernels().workspace_bytes(sets.back()));
    } while (sets.size() < 64 && allocated_ < 3 * device_.cache_bytes());
    const Timing t = device_.measure(options_.seconds, [&](int i) {
      device_.kernels().run(sets[size_t(i) % sets.size()], Stream{nullptr});
    });
    report({name, shape, per_step, sets.front().cost(), t.median});
    release();
  }
  // For what an operation reads of another's results.
  template <class Op>
  void run_once(Op op) {
    if constexpr (requires { op.workspace; })
      op.workspace = allocate(device_.kernels().workspace_bytes(op));
    device_.kernels().run(op, Stream{nullptr});
  }

  void print_head() const;
  void print_totals() const;
  // [{"operation": ..., "shape": ..., "us": ..., ...}, ...]
  std::string json() const;

 private:
  void* allocate(size_t bytes);
  void* random(size_t elements, DType, float lowest);
  void report(const Result&);
  void release();

  BenchDevice& device_;
  Ceilings ceilings_;
  Options options_;
  DType dtype_;
  std::vector<void*> memory_;
  size_t allocated_ = 0;
  std::vector<Result> results_;
};

// Every operation of a training step of `model` at `batch` images. Throws std::invalid_argument for
// a model that there isn't.
void bench_vit(Bench&, const std::string& model, int batch);
void bench_resnet(Bench&, const std::string& model, int batch);

// Of these, what models have in common.
struct Layer {
  const char* name;
  int M, N, K, per_step;
  bool bias, needs_dinp;
};
void bench_linear(Bench&, const Layer&);
void bench_loss(Bench&, int B, int classes);
void bench_update(Bench&, size_t parameters, OptimizerKind of_a_step);
std::string shape(std::initializer_list<int> sizes);  // "16x224x224x3"

}  // namespace bv::bench
