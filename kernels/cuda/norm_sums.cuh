// What the two kernels share that take the sums of batch norm's backward: the pass over dout, and the
// convolution's that writes dout.
#pragma once
#include "kernels/cuda/last_block.cuh"

namespace bv::BAREVISION_GPU {

template <int width>
struct NormColumns {
  float mean[width], scale[width], bias[width];  // scale = rstd * weight

  // y before the residual; backward recomputes its sign.
  __device__ float normalised(int i, float x) const { return fmaf(x - mean[i], scale[i], bias[i]); }
};

template <int width>
__device__ NormColumns<width> norm_columns(const float (&mean)[width], const float (&rstd)[width],
                                           const float* weight, const float* bias, int column) {
  const auto w = load<width>(weight + column), b = load<width>(bias + column);
  NormColumns<width> c;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    c.mean[i] = mean[i];
    c.scale[i] = rstd[i] * w.at[i];
    c.bias[i] = b.at[i];
  }
  return c;
}

// What LastBlock makes of each part's sums of g and of g * xhat.
struct NormSums {
  struct Value {
    float g, g_xhat;
    __device__ friend void merge(Value& a, const Value& b) { a.g += b.g, a.g_xhat += b.g_xhat; }
  };
  float* sums;             // [2, C]  =
  float *dweight, *dbias;  // [C]  = or +=, by accumulate
  int C;
  bool accumulate;

  __device__ Value value(int, int, float g, float g_xhat) const { return {g, g_xhat}; }
  __device__ void save(float* part, const Value& of) const { part[0] = of.g, part[C] = of.g_xhat; }
  __device__ void finish(int c, const Value& of) const {
    sums[c] = of.g, sums[C + c] = of.g_xhat;
    dbias[c] = accumulate ? dbias[c] + of.g : of.g;
    dweight[c] = accumulate ? dweight[c] + of.g_xhat : of.g_xhat;
  }
};

}  // namespace bv::BAREVISION_GPU
