#include "bench/bench.h"

#include <bit>
#include <cstdio>
#include <cstring>

namespace bv::bench {
namespace {

// Tests check conversions; here a bf16 may be cut off.
uint16_t to_16_bits(float x, DType dtype) {
  if (dtype == DType::bf16) return uint16_t(std::bit_cast<uint32_t>(x) >> 16);
  return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
}

struct Shares {
  double copy, product, bound;  // of a run's time: what the ceilings alone would take
};

Shares shares(const Result& r, const Ceilings& c) {
  const double copy = r.cost.bytes / c.copy_bytes_per_second / r.seconds,
               product = r.cost.flops / c.product_flops_per_second / r.seconds;
  return {copy, product, std::max(copy, product)};
}

}  // namespace

Bench::Bench(BenchDevice& device, const Ceilings& ceilings, const Options& options, DType dtype)
    : device_(device), ceilings_(ceilings), options_(options), dtype_(dtype) {}

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

// A million numbers, over and over.
void* Bench::random(size_t elements, DType dtype, float lowest) {
  const size_t size = size_of(dtype), pattern = std::min<size_t>(elements, 1 << 20);
  std::vector<char> bytes(pattern * size);
  uint32_t state = 1;
  for (size_t i = 0; i < pattern; ++i) {
    state = state * 1664525u + 1013904223u;
    const float v = lowest + (1 - lowest) * float(state >> 8) * 0x1p-24f;
    const uint16_t word = dtype == DType::fp32 ? uint16_t{0} : to_16_bits(v, dtype);
    std::memcpy(&bytes[i * size], dtype == DType::fp32 ? static_cast<const void*>(&v) : &word,
                size);
  }
  char* p = static_cast<char*>(allocate(elements * size));
  for (size_t at = 0; at < elements * size; at += bytes.size())
    device_.upload(p + at, bytes.data(), std::min(bytes.size(), elements * size - at));
  return p;
}

void Bench::print_head() const {
  std::printf("%-23s %-20s %9s %8s %5s %9s %5s %6s %5s %8s\n", "operation", "shape", "us", "GB/s",
              "%copy", "GFLOP/s", "%prod", "%bound", "calls", "ms/step");
}

// %bound: of the time that the ceilings alone would take, both for itself.
void Bench::report(const Result& r) {
  const Shares share = shares(r, ceilings_);
  std::printf("%-23s %-20s %9.1f %8.2f %5.1f %9.1f %5.1f %6.1f %5d %8.2f\n", r.operation.c_str(),
              r.shape.c_str(), 1e6 * r.seconds, r.cost.bytes / r.seconds / 1e9, 100 * share.copy,
              r.cost.flops / r.seconds / 1e9, 100 * share.product, 100 * share.bound, r.per_step,
              1e3 * r.per_step * r.seconds);
  std::fflush(stdout);
  results_.push_back(r);
}

void Bench::print_totals() const {
  double seconds = 0, bound = 0, flops = 0;
  for (const Result& r : results_) {
    seconds += r.per_step * r.seconds, flops += r.per_step * r.cost.flops;
    bound += r.per_step * r.seconds * shares(r, ceilings_).bound;
  }
  std::printf("%-23s %-20s %9s %8s %5s %9.1f %5.1f %6.1f %5s %8.2f\n", "a training step", "", "",
              "", "", flops / seconds / 1e9,
              100 * flops / seconds / ceilings_.product_flops_per_second, 100 * bound / seconds, "",
              1e3 * seconds);
}

std::string Bench::json() const {
  std::string list;
  for (const Result& r : results_) {
    char line[400];
    std::snprintf(line, sizeof line,
                  "%s\n {\"operation\": \"%s\", \"shape\": \"%s\", \"per_step\": %d, \"us\": %.3f, "
                  "\"bytes\": %.0f, \"flops\": %.0f, \"bound\": %.4f}",
                  list.empty() ? "" : ",", r.operation.c_str(), r.shape.c_str(), r.per_step,
                  1e6 * r.seconds, r.cost.bytes, r.cost.flops, shares(r, ceilings_).bound);
    list += line;
  }
  char head[300];
  std::snprintf(head, sizeof head,
                "{\"copy_bytes_per_second\": %.4g, \"product_flops_per_second\": %.4g, "
                "\"product\": \"%s\", \"operations\": [",
                ceilings_.copy_bytes_per_second, ceilings_.product_flops_per_second,
                ceilings_.product.c_str());
  return head + list + "]}\n";
}

}  // namespace bv::bench
