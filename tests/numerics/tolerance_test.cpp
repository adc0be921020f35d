// How strict the table of tests is with attention in 16 bits, against the usual rule: max|out -
// exact| at most 2 max|naive - exact|, 3 for gradients, where naive rounds scores, probabilities
// and all their gradients to 16 bits. Ours holds for each element, not the largest alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/kernel_problem.h"

namespace bv::test {
namespace {

struct Attention {
  oracle::AttentionSizes s;
  Values qkv, dout;
  Tensor exact_out, exact_dqkv;
  Values out, lse;  // as a forward pass saves them

  Attention(DType dtype, double scale) : s{.B = 1, .N = 130, .H = 1, .D = 32} {
    s.dtype = dtype;
    Problem p(dtype);
    qkv = p.held(p.data(size_t(s.N) * 3 * s.D, 0, scale)), dout = p.data(size_t(s.N) * s.D);
    const oracle::AttentionResult r = oracle::attention_forward(qkv, s);
    exact_out = r.out, out = p.held(rounded(r.out)), lse = rounded(r.lse);
    exact_dqkv = oracle::attention_backward(dout, qkv, out, lse, s);
  }

  double held(double v) const { return test::held(v, s.dtype); }
  size_t at(int n, int which, int d) const { return (size_t(n) * 3 + which) * s.D + d; }
  double dot(int q, const Values& rows, int k, int which) const {
    double sum = 0;
    for (int d = 0; d < s.D; ++d)
      sum += (&rows == &qkv ? qkv[at(q, 0, d)] : rows[size_t(q) * s.D + d]) * qkv[at(k, which, d)];
    return sum;
  }

  void naive(Values& naive_out, Values& naive_dqkv) const {
    naive_out.assign(out.size(), 0), naive_dqkv.assign(qkv.size(), 0);
    const double scale = 1 / std::sqrt(double(s.D));
    for (int q = 0; q < s.N; ++q) {
      Values p(s.N);
      double total = 0, delta = 0;
      for (int k = 0; k < s.N; ++k) total += p[k] = std::exp(held(scale * dot(q, qkv, k, 1)));
      for (int d = 0; d < s.D; ++d) delta += dout[size_t(q) * s.D + d] * out[size_t(q) * s.D + d];
      for (int k = 0; k < s.N; ++k) {
        p[k] = held(p[k] / total);
        const double ds = held(p[k] * (held(dot(q, dout, k, 2)) - delta)) * scale;
        for (int d = 0; d < s.D; ++d) {
          naive_out[size_t(q) * s.D + d] += p[k] * qkv[at(k, 2, d)];
          naive_dqkv[at(k, 2, d)] += p[k] * dout[size_t(q) * s.D + d];
          naive_dqkv[at(q, 0, d)] += ds * qkv[at(k, 1, d)];
          naive_dqkv[at(k, 1, d)] += ds * qkv[at(q, 0, d)];
        }
      }
    }
  }

  double largest_tolerance(const Tensor& exact) const {
    double largest = 0;
    for (const Tracked& e : exact) largest = std::max(largest, tolerance(e, s.dtype));
    return largest;
  }
  double largest_error(const Values& naive, const Tensor& exact) const {
    double largest = 0;
    for (size_t i = 0; i < naive.size(); ++i)
      largest = std::max(largest, std::fabs(held(naive[i]) - exact[i].value));
    return largest;
  }
};

TEST(Tolerance, OfAttentionIn16BitsIsAboutTheUsualOrStricter) {
  for (const DType dtype : {DType::fp16, DType::bf16})
    for (const double scale : {1.0, 8.0}) {  // of queries and keys: softmax is spread, or peaked
      const Attention a(dtype, scale);
      Values out, dqkv;
      a.naive(out, dqkv);
      const double forward = a.largest_tolerance(a.exact_out) / a.largest_error(out, a.exact_out);
      const double backward =
          a.largest_tolerance(a.exact_dqkv) / a.largest_error(dqkv, a.exact_dqkv);
      EXPECT_LE(forward, scale > 1 ? 0.5 : 2.5);
      EXPECT_LE(backward, scale > 1 ? 0.5 : 3);
    }
}

}  // namespace
}  // namespace bv::test
