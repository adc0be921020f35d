// Mean and variance of each column of a matrix [rows, C], without cancellation and in a fixed
// order: the mean and the sum of squared differences from it (M2) are computed for each part of the
// rows and merged (Chan et al. 1979). All parts have the same number of rows, but the last may have
// fewer.
#pragma once
#include "kernels/cuda/last_block.cuh"

namespace bv::BAREVISION_GPU {

// The moments of `count` values.
struct Moments {
  float count, mean, m2;
};

// Merges b, of m values, into a, of n:
//   mean += delta m / (n + m),   M2 += M2_b + delta^2 n m / (n + m)
__device__ inline void merge(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  const float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  a.mean = fmaf(delta, share, a.mean);
  a.m2 += fmaf(delta * delta, a.count * share, b.m2);
  a.count = count;
}

// LastBlock policy: merges the parts' means and M2.
struct MergeMoments {
  using Value = Moments;
  float* moments;  // [2, C]  =: mean and biased variance
  int rows_of_part, rows, C;

  __device__ Moments value(int part, int parts, float mean, float m2) const {
    const int64_t whole = int64_t{parts} * rows_of_part, left = rows - int64_t{part} * rows_of_part;
    return {static_cast<float>(left < whole ? left : whole), mean, m2};
  }
  __device__ void save(float* part, const Moments& of) const { part[0] = of.mean, part[C] = of.m2; }
  __device__ void finish(int c, const Moments& of) const {
    moments[c] = of.mean;
    moments[C + c] = of.m2 / static_cast<float>(rows);
  }
};

// The moments of a matrix in memory.
struct ColumnMoments {
  float* moments;   // [2, C]  =
  void* workspace;  // [column_moments_bytes]
  const void* inp;  // [rows, C] dtype
  int rows, C;
  DType dtype;
};
size_t column_moments_bytes(const DeviceProps&, DType, int rows, int C);
void column_moments(const DeviceProps&, const ColumnMoments&, cudaStream_t);

}  // namespace bv::BAREVISION_GPU
