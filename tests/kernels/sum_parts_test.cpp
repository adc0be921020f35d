// SumParts: an fp32 sum in the order that kernels.h defines, so that all devices agree bit for bit.
#include "tests/kernels/kernel_cases.h"

namespace bv::test {
namespace {

// Parts begin .. begin + n of element i.
float tree(const Values& parts, size_t stride, size_t i, int begin, int n) {
  if (n == 1) return float(parts[size_t(begin) * stride + i]);
  int half = 1;
  while (2 * half < n) half *= 2;
  return tree(parts, stride, i, begin, half) + tree(parts, stride, i, begin + half, n - half);
}

struct SumCase {
  int parts, count, stride;
  float factor = 1;
  bool in_place = false;
};

Problem sum_parts(DType dtype, const SumCase& c) {
  Problem p(dtype);
  p.any_threads = true;
  const auto rows = size_t(c.parts), stride = size_t(c.stride), count = size_t(c.count);
  const size_t total = (rows - 1) * stride + count;
  const Values inp = c.in_place ? p.data_fp32(total) : p.data(total);
  Values out;
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int begin = 0; begin < c.parts; begin += 64) {
      const float next = tree(inp, stride, i, begin, std::min(64, c.parts - begin));
      sum = begin ? sum + next : next;
    }
    out.push_back(sum * c.factor);
  }
  // The sum has one order, so the results are equal. Set only now, or the data would be integers.
  p.exact = true;
  const SumParts op{.count = count,
                    .stride = stride,
                    .factor = c.factor,
                    .parts = c.parts,
                    .dtype = c.in_place ? DType::fp32 : dtype};
  if (c.in_place) {
    Tensor after = exactly(inp);
    std::ranges::copy(exactly(out), after.begin());
    p.output_fp32("out", {int(total)}, after, inp);
    p.runs(op, {{"inp", "out"}});
  } else {
    p.output_fp32("out", {c.count}, exactly(out));
    p.input("inp", {int(total)}, inp);
    p.runs(op);
  }
  return p;
}

KernelCases sum_cases() {
  KernelCases cases;
  const auto add = [&](const SumCase& c) {
    cases.add("sum_parts" +
                  sizes({{"parts", c.parts},
                         {"count", c.count},
                         {"stride", c.stride},
                         {"percent", int(100 * c.factor)}}) +
                  flag(c.in_place, "in_place"),
              sum_parts, c);
  };
  for (const int parts : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 63, 64, 65, 128, 131})
    for (const int count : {1, 3, 64, 1027}) add({parts, count, (count + 63) / 64 * 64 + 64});
  for (const int parts : {2, 4, 8, 16}) {
    add({.parts = parts, .count = 1024, .stride = 1024, .factor = 1.0f / 3});
    add({.parts = parts, .count = 1027, .stride = 1088, .in_place = true});
  }
  for (const float factor : {0.0f, 0.25f, 1.0f / 3})
    for (const bool in_place : {false, true})
      add({.parts = 1, .count = 40009, .stride = 0, .factor = factor, .in_place = in_place});
  add({.parts = 4, .count = 300007, .stride = 300032});
  cases.begin_sweep();
  for (const int count : sweep_of_sizes())
    for (const int parts : {2, 5, 24}) add({parts, count, (count + 63) / 64 * 64});
  cases.in_every_dtype();
  return cases;
}

[[maybe_unused]] const bool added = add_cases(sum_cases());

using Op = SumParts;
constexpr size_t too_many = (size_t{1} << 40) + 1;
[[maybe_unused]] const bool refused =
    refuses<Op>({{"parts", [](Op& o) { o.parts = 0; }},
                 {"count", [](Op& o) { o.count = 0; }},
                 {"count", [](Op& o) { o.count = too_many; }},
                 {"stride", [](Op& o) { o.parts = 2, o.count = 65, o.stride = 64; }},
                 {"stride", [](Op& o) { o.parts = 2, o.stride = too_many; }},
                 {"stride", [](Op& o) { o.parts = 2, o.count = 1, o.stride = 63; }}});

}  // namespace
}  // namespace bv::test
