#include "tests/kernels/kernel_problem.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tests/numerics/format.h"

namespace bv::test {
namespace {

constexpr size_t guard = 256;
// The largest allowed error, in standard deviations. Tracked assumes the largest error for every
// rounding, so correct kernels stay below 3; the rest allows for other orders and approximations.
constexpr double deviations = 5;
constexpr double smallest = 1e-37;  // errors below fp32's normal numbers

size_t elements(const Shape& shape) {
  size_t n = 1;
  for (int extent : shape) n *= size_t(extent);
  return n;
}

Comparison compare_output(const Argument& a, const Bytes& after, bool exact) {
  Values expected, allowed;
  for (const Tracked& e : a.expected) {
    expected.push_back(exact ? held(e.value, a.dtype) : e.value);
    allowed.push_back(exact ? 0 : tolerance(e, a.dtype));
  }
  return compare(decode(after, a.dtype), expected, allowed);
}

class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (threads) omp_set_num_threads(threads);
  }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace

bool is_same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size()));
}

double tolerance(const Tracked& expected, DType dtype) {
  const double fp32 = deviations * std::sqrt(expected.variance) + expected.lost + smallest;
  return dtype == DType::fp32 ? fp32 : fp32 + half_ulp(std::fabs(expected.value) + fp32, dtype);
}

// ---- arguments on the device --------------------------------------------------------------------
DeviceArguments::DeviceArguments(const Device& device, const std::vector<Argument>& arguments,
                                 unsigned char poison)
    : device_(device), poison_(poison) {
  for (const Argument& a : arguments) add(a.name, a.bytes, a.before);
}

DeviceArguments::~DeviceArguments() {
  for (const Block& b : blocks_) device_.release(b.base);
}

char* DeviceArguments::add(const std::string& name, size_t bytes, const Bytes& before) {
  Bytes image(bytes + 2 * guard, std::byte{poison_});
  std::copy(before.begin(), before.end(), image.begin() + guard);
  blocks_.push_back({name, static_cast<char*>(device_.allocate(image.size())), bytes});
  device_.upload(blocks_.back().base, image.data(), image.size());
  return blocks_.back().base + guard;
}

void* DeviceArguments::find(const std::string& name, bool must) const {
  for (const Block& b : blocks_)
    if (b.name == name) return b.base + guard;
  if (must) throw std::logic_error("the problem has no argument " + name);
  return nullptr;
}

void* DeviceArguments::workspace(size_t bytes) {
  return bytes ? add("workspace", bytes, {}) : nullptr;
}

Bytes DeviceArguments::read(const std::string& name) const {
  for (const Block& b : blocks_)
    if (b.name == name) {
      Bytes bytes(b.bytes);
      device_.download(bytes.data(), b.base + guard, b.bytes);
      return bytes;
    }
  throw std::logic_error("the problem has no argument " + name);
}

size_t DeviceArguments::bytes_at(const void* p) const {
  for (const Block& b : blocks_)
    if (b.base + guard == p) return b.bytes;
  return 0;
}

std::vector<std::string> DeviceArguments::overwritten_sentinels() const {
  std::vector<std::string> names;
  for (const Block& b : blocks_) {
    Bytes image(guard);
    const auto untouched = [&](size_t from) {
      device_.download(image.data(), b.base + from, guard);
      return is_same(image, Bytes(guard, std::byte{poison_}));
    };
    if (!untouched(0)) names.push_back("before " + b.name);
    if (!untouched(guard + b.bytes)) names.push_back("after " + b.name);
  }
  return names;
}

// ---- problem ------------------------------------------------------------------------------------
void Problem::add(const std::string& name, Shape shape, DType type, const Values* before,
                  Tensor expected) {
  const size_t n = elements(shape);
  if ((before && before->size() != n) || (!expected.empty() && expected.size() != n))
    throw std::logic_error("argument " + name + ": values don't fit its shape");
  // Otherwise the oracle would compute with other numbers than the device.
  for (size_t i = 0; before && i < n; ++i)
    if ((*before)[i] != test::held((*before)[i], type) && !std::isnan((*before)[i]))
      throw std::logic_error("argument " + name + ": values that its dtype can't hold: see held()");
  arguments.push_back({.name = name,
                       .shape = std::move(shape),
                       .dtype = type,
                       .bytes = n * size_of(type),
                       .before = before ? encode(*before, type) : Bytes{},
                       .expected = std::move(expected),
                       .check = {}});
}

void Problem::add_bytes(const std::string& name, std::span<const std::byte> before,
                        std::function<std::string(std::span<const std::byte>)> check) {
  arguments.push_back({.name = name,
                       .shape = {},
                       .bytes = before.size(),
                       .before = Bytes(before.begin(), before.end()),
                       .expected = {},
                       .check = std::move(check)});
}

void Problem::input(const std::string& name, Shape shape, const Values& values) {
  add(name, std::move(shape), dtype, &values, {});
}
void Problem::input_fp32(const std::string& name, Shape shape, const Values& values) {
  add(name, std::move(shape), DType::fp32, &values, {});
}
void Problem::output(const std::string& name, Shape shape, Tensor expected, const Values& before) {
  add(name, std::move(shape), dtype, before.empty() ? nullptr : &before, std::move(expected));
}
void Problem::output_fp32(const std::string& name, Shape shape, Tensor expected,
                          const Values& before) {
  add(name, std::move(shape), DType::fp32, before.empty() ? nullptr : &before, std::move(expected));
}

void Problem::gradient(const std::string& name, Shape shape, Tensor added, bool accumulate) {
  Values before;
  if (accumulate) {
    before = data_fp32(added.size());
    for (size_t i = 0; i < added.size(); ++i) added[i] += Tracked(before[i]);
  }
  output_fp32(name, std::move(shape), std::move(added), before);
}

Values Problem::data(size_t n, double mean, double deviation) {
  return held(data_fp32(n, mean, deviation));
}
Values Problem::data_fp32(size_t n, double mean, double deviation) {
  return exact ? random.integers(n, -4, 4) : random.normal(n, mean, deviation);
}
Values Problem::held(const Values& values) const { return test::held(values, dtype); }

// ---- run ----------------------------------------------------------------------------------------
namespace {

Outcome execute(const Problem& problem, const Device& device, int threads, unsigned char poison,
                bool with_mistakes, const Outcome* first) {
  const ThreadCount count(threads);
  const StandInChip chip(device.chip);
  const std::shared_ptr<Kernels> kernels = device.make_kernels();
  DeviceArguments memory(device, problem.arguments, poison);
  memory.with_mistakes = with_mistakes;
  problem.run(*kernels, memory);
  Outcome outcome;
  outcome.failures = memory.accepted_mistakes;
  for (const Argument& a : problem.arguments) {
    const Bytes after = memory.read(a.name);
    if (!a.is_output()) {
      if (!is_same(after, a.before)) outcome.failures.push_back("input " + a.name + " was changed");
      continue;
    }
    outcome.outputs.push_back(after);
    if (first && is_same(after, first->outputs[outcome.outputs.size() - 1])) continue;
    if (a.check) {
      if (const std::string wrong = a.check(after); !wrong.empty())
        outcome.failures.push_back(a.name + ": " + wrong);
      continue;
    }
    const Comparison c = compare_output(a, after, problem.exact);
    outcome.worst_ratio = std::max(outcome.worst_ratio, c.ratio);
    if (!c.ok()) outcome.failures.push_back(a.name + ": " + c.describe(a.shape));
  }
  if (problem.check_together)
    if (const std::string wrong = problem.check_together(memory); !wrong.empty())
      outcome.failures.push_back(wrong);
  for (const std::string& where : memory.overwritten_sentinels())
    outcome.failures.push_back("wrote " + where);
  return outcome;
}

}  // namespace

Outcome execute(const Problem& problem, const Device& device, int threads, unsigned char poison,
                bool with_mistakes) {
  return execute(problem, device, threads, poison, with_mistakes, nullptr);
}
Outcome execute_again(const Problem& problem, const Device& device, int threads,
                      unsigned char poison, const Outcome& first) {
  return execute(problem, device, threads, poison, false, &first);
}

std::string sizes(std::initializer_list<std::pair<const char*, int>> list) {
  std::string s;
  for (const auto& [name, value] : list) s += std::string("_") + name + std::to_string(value);
  return s;
}
std::string flag(bool set, const char* name) { return set ? std::string("_") + name : ""; }

Values rounded(const Tensor& tensor) {
  Values values;
  for (const Tracked& t : tensor) values.push_back(float(t.value));
  return values;
}
Tensor exactly(const Values& values) { return Tensor(values.begin(), values.end()); }

}  // namespace bv::test
