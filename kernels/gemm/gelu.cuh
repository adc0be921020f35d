// The exact GELU, x Phi(x), and its slope, in fp32.
//
// Phi is computed from its tail, with 10 multiply-adds and an ex2:
//   Phi(-t) = 2^P(t) for t >= 0,   x Phi(x) = max(x, 0) - |x| Phi(-|x|)
// P is the minimax polynomial on 0 <= t <= 6. Its error in Phi is 4e-9, its relative error in
// Phi(-t) is 4e-6; evaluated in fp32, they are 5e-8 and 7e-6. Beyond 6, P falls faster than
// log2 Phi(-t), so that 2^P tends to 0 without a clamp.
#pragma once
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {

// Phi(-t), t >= 0.
__device__ inline float normal_tail(float t) {
  float p = fmaf(-2.65055636e-8f, t, 8.04915625e-7f);
  p = fmaf(p, t, -1.04434742e-5f);
  p = fmaf(p, t, 7.36535557e-5f);
  p = fmaf(p, t, -0.000270553982f);
  p = fmaf(p, t, -1.84922812e-5f);
  p = fmaf(p, t, 0.00696976226f);
  p = fmaf(p, t, -0.0524572555f);
  p = fmaf(p, t, -0.459215343f);
  p = fmaf(p, t, -1.15110488f);
  p = fmaf(p, t, -1.0f);
  return ex2_approx_ftz(p);
}
__device__ inline float gelu(float x) {
  const float t = fabsf(x);
  return fmaf(-t, normal_tail(t), fmaxf(x, 0));  // NaN stays NaN
}
__device__ inline float gelu_slope(float x) {
  const float tail = normal_tail(fabsf(x));
  const float density = ex2_approx_ftz(fmaf(x * x, -0.721347520f, -1.32574806f));
  return fmaf(x, density, x < 0 ? tail : 1 - tail);
}

}  // namespace bv::BAREVISION_GPU
