// Philox (kernels/philox.h) in vectors: the words of 4 * width neighbouring decisions at once.
#pragma once
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {

// out[v][lane] = word i % 4 of philox(key, counter + i / 4, c1, c2, c3), i = v * width + lane.
static inline void philox_words(uint64_t key, uint32_t counter, uint32_t c1, uint32_t c2,
                                uint32_t c3, simd::vu out[4]) {
  using simd::vu;
  // Lane 4 L + v holds the counter whose words the interleaving below puts into quad L of out[v].
  const vu lane = reinterpret_cast<vu>(simd::count_up());
  vu x0 = counter + (lane % 4) * (simd::width / 4) + lane / 4;
  vu x1 = vu{} + c1, x2 = vu{} + c2, x3 = vu{} + c3;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    vu high0, low0, high1, low1;
    simd::multiply(x0, 0xD2511F53u, high0, low0);
    simd::multiply(x2, 0xCD9E8D57u, high1, low1);
    x0 = high1 ^ x1 ^ k0;
    x1 = low1;
    x2 = high0 ^ x3 ^ k1;
    x3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const vu a = simd::low_pairs(x0, x1), b = simd::low_pairs(x2, x3);
  const vu c = simd::high_pairs(x0, x1), d = simd::high_pairs(x2, x3);
  out[0] = simd::low_halves(a, b);
  out[1] = simd::high_halves(a, b);
  out[2] = simd::low_halves(c, d);
  out[3] = simd::high_halves(c, d);
}

// uniform() of kernels/philox.h
static inline simd::vf uniform(simd::vu word) {
  return simd::to_float(reinterpret_cast<simd::vi>(word >> 8)) * 0x1p-24f;
}

}  // namespace bv::BAREVISION_ISA
