#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/oracle.h"

namespace bv::test::oracle {
namespace {

// Where things lie: packed projections [B, N, 3, H, D], everything else [B, N, H, D] or [B, H, N].
struct Index {
  const AttentionSizes& s;
  size_t packed(int b, int n, int which, int h, int d) const {
    return (((size_t(b) * s.N + n) * 3 + which) * s.H + h) * s.D + d;
  }
  size_t token(int b, int n, int h, int d) const {
    return ((size_t(b) * s.N + n) * s.H + h) * s.D + d;
  }
  size_t row(int b, int h, int n) const { return (size_t(b) * s.H + h) * s.N + n; }
};

Tracked score_scale(const AttentionSizes& s) { return Tracked(1) / sqrt(Tracked(s.D)); }

// Scores of one query over all keys.
Tensor scores(const Values& qkv, const AttentionSizes& s, int b, int h, int q) {
  const Index at{s};
  Tensor row(s.N);
  for (int k = 0; k < s.N; ++k) {
    for (int d = 0; d < s.D; ++d)
      row[k] += Tracked(qkv[at.packed(b, q, 0, h, d)]) * Tracked(qkv[at.packed(b, k, 1, h, d)]);
    row[k] = row[k] * score_scale(s);
  }
  return row;
}

// mask / (1 - drop)
Tracked keep_factor(const AttentionSizes& s, int b, int h, int q, int k) {
  if (s.drop == 0) return 1;
  const uint32_t decision =
      (uint32_t(h) * uint32_t(s.N) + uint32_t(q)) * uint32_t(s.N) + uint32_t(k);
  if (!kept(decision, b, s.layer, s.drop, s.params)) return 0;
  return Tracked(1) / (Tracked(1) - Tracked(s.drop));
}

}  // namespace

AttentionResult attention_forward(const Values& qkv, const AttentionSizes& s) {
  const Index at{s};
  AttentionResult r{Tensor(size_t(s.B) * s.N * s.H * s.D), Tensor(size_t(s.B) * s.H * s.N)};
  for (int b = 0; b < s.B; ++b)
    for (int h = 0; h < s.H; ++h)
      for (int q = 0; q < s.N; ++q) {
        Tensor p = scores(qkv, s, b, h, q);
        double largest = -std::numeric_limits<double>::infinity();
        for (const Tracked& score : p) largest = std::max(largest, score.value);
        Tracked total = 0;
        for (Tracked& e : p) total += e = exp(e - Tracked(largest));
        r.lse[at.row(b, h, q)] = Tracked(largest) + log(total);
        for (int k = 0; k < s.N; ++k) {
          const Tracked weight = in_16_bits(p[k], s.dtype) / total * keep_factor(s, b, h, q, k);
          for (int d = 0; d < s.D; ++d)
            r.out[at.token(b, q, h, d)] += weight * Tracked(qkv[at.packed(b, k, 2, h, d)]);
        }
      }
  return r;
}

Tensor attention_backward(const Values& dout, const Values& qkv, const Values& out,
                          const Values& lse, const AttentionSizes& s) {
  const Index at{s};
  const Tracked scale = score_scale(s);
  Tensor dqkv(qkv.size());
  for (int b = 0; b < s.B; ++b)
    for (int h = 0; h < s.H; ++h)
      for (int q = 0; q < s.N; ++q) {
        const Tensor row = scores(qkv, s, b, h, q);
        Tracked delta = 0;
        for (int d = 0; d < s.D; ++d)
          delta += Tracked(dout[at.token(b, q, h, d)]) * Tracked(out[at.token(b, q, h, d)]);
        for (int k = 0; k < s.N; ++k) {
          const Tracked p = exp(row[k] - Tracked(lse[at.row(b, h, q)]));
          const Tracked keep = keep_factor(s, b, h, q, k);
          Tracked dp = 0;
          for (int d = 0; d < s.D; ++d) {
            const Tracked g = dout[at.token(b, q, h, d)];
            dp += g * Tracked(qkv[at.packed(b, k, 2, h, d)]);
            dqkv[at.packed(b, k, 2, h, d)] += in_16_bits(p, s.dtype) * keep * g;
          }
          const Tracked ds = in_16_bits(p * (dp * keep - delta) * scale, s.dtype);
          for (int d = 0; d < s.D; ++d) {
            dqkv[at.packed(b, q, 0, h, d)] += ds * Tracked(qkv[at.packed(b, k, 1, h, d)]);
            dqkv[at.packed(b, k, 1, h, d)] += ds * Tracked(qkv[at.packed(b, q, 0, h, d)]);
          }
        }
      }
  return dqkv;
}

}  // namespace bv::test::oracle
