#include "bench/bench.h"

#include <algorithm>
#include <cstdio>

#include "base/json.h"

namespace bv::bench {
namespace {

struct Shares {
  double copy, product, bound;  // shares of a run's time that bytes or flops take at the ceilings
};

Shares shares(const Result& r, const Ceilings& c) {
  const double copy = r.cost.bytes / c.copy_bytes_per_second / r.seconds,
               product = r.cost.flops / c.product_flops_per_second / r.seconds;
  return {copy, product, std::max(copy, std::min(product, 1.0))};
}

}  // namespace

Bench::Bench(BenchDevice& device, const Ceilings& ceilings, double seconds)
    : device_(device), ceilings_(ceilings), seconds_(seconds) {}

void Bench::measure(const RecordedOperation& recorded) {
  const auto seconds = [&]<class Op>(const Op& op) {
    std::vector<Op> sets;
    do {
      sets.push_back(in_new_memory(op, [&](const TensorArgument& t) { return tensor(t); }));
      if constexpr (requires { op.workspace; })
        sets.back().workspace = allocate(device_.kernels().workspace_bytes(sets.back()));
    } while (sets.size() < 64 && allocated_ < 3 * device_.cache_bytes());
    return device_
        .measure(seconds_,
                 [&](int i) { device_.kernels().run(sets[size_t(i) % sets.size()], nullptr); })
        .median;
  };
  const bool by_hopper = std::visit([&](const auto& op) { return device_.kernels().by_hopper(op); },
                                    recorded.operation);
  report({recorded.name, recorded.shape, recorded.count, recorded.cost,
          std::visit(seconds, recorded.operation), by_hopper});
  release();
}

void* Bench::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  memory_.push_back(device_.allocate(bytes));
  allocated_ += bytes;
  return memory_.back();
}

void Bench::release() {
  for (void* p : memory_) device_.release(p);
  memory_.clear();
  allocated_ = 0;
}

void* Bench::tensor(const TensorArgument& t) {
  const auto bytes = size_t(t.bytes);
  const std::vector<std::byte> values = usual_values(t);
  char* p = static_cast<char*>(allocate(bytes));
  for (size_t at = 0; at < bytes; at += values.size())
    device_.upload(p + at, values.data(), std::min(values.size(), bytes - at));
  return p;
}

void Bench::print_head() const {
  std::printf("%-31s %-45s %9s %8s %5s %9s %5s %6s %5s %8s\n", "operation", "shape", "us", "GB/s",
              "%copy", "GFLOP/s", "%prod", "%bound", "calls", "ms/step");
}

// %bound: the larger of %copy and %prod (counted up to 100), the shares of an operation's time that
// its bytes and its flops would take at the ceilings. An operation above the copy ceiling, that of
// memory, has its tensors in the cache.
void Bench::report(const Result& r) {
  const Shares share = shares(r, ceilings_);
  const auto percent = [](double of_one) {
    char text[16] = "cache";
    if (of_one <= 1) std::snprintf(text, sizeof text, "%.1f", 100 * of_one);
    return std::string(text);
  };
  std::printf("%-31s %-45s %9.1f %8.2f %5s %9.1f %5.1f %6s %5d %8.2f%s\n", r.operation.c_str(),
              r.shape.c_str(), 1e6 * r.seconds, r.cost.bytes / r.seconds / 1e9,
              percent(share.copy).c_str(), r.cost.flops / r.seconds / 1e9, 100 * share.product,
              percent(share.bound).c_str(), r.per_step, 1e3 * r.per_step * r.seconds,
              r.by_hopper ? "  hopper" : "");
  std::fflush(stdout);
  results_.push_back(r);
}

void Bench::print_totals() const {
  double seconds = 0, bound = 0, flops = 0;
  for (const Result& r : results_) {
    seconds += r.per_step * r.seconds, flops += r.per_step * r.cost.flops;
    bound += r.per_step * r.seconds * std::min(1.0, shares(r, ceilings_).bound);
  }
  std::printf("%-31s %-45s %9s %8s %5s %9.1f %5.1f %6.1f %5s %8.2f\n", "a training step", "", "",
              "", "", flops / seconds / 1e9,
              100 * flops / seconds / ceilings_.product_flops_per_second, 100 * bound / seconds, "",
              1e3 * seconds);
}

std::string Bench::json() const {
  Json rows = Json::array();
  for (const Result& r : results_) {
    rows.push_back({{"operation", r.operation},
                    {"shape", r.shape},
                    {"per_step", r.per_step},
                    {"us", 1e6 * r.seconds},
                    {"bytes", r.cost.bytes},
                    {"flops", r.cost.flops},
                    {"bound", shares(r, ceilings_).bound}});
    if (r.by_hopper) rows.back()["kernels"] = "hopper";
  }
  return to_line({{"copy_bytes_per_second", ceilings_.copy_bytes_per_second},
                  {"product_flops_per_second", ceilings_.product_flops_per_second},
                  {"product", ceilings_.product},
                  {"operations", rows}}) +
         "\n";
}

}  // namespace bv::bench
