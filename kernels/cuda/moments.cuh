// Mean and variance of each column of a matrix [rows, C], without cancellation and in a fixed
// order: each part of the rows has its mean and its sum of squared differences from that (M2), and
// these are merged (Chan et al. 1979). Parts have the same number of rows; the last may have fewer.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {

// Of `count` values.
struct Moments {
  float count, mean, m2;
};

// Of n and m values: mean += delta m / (n + m),   M2 += M2_b + delta^2 n m / (n + m)
__device__ inline void merge(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  const float count = a.count + b.count, delta = b.mean - a.mean, share = b.count / count;
  a.mean = fmaf(delta, share, a.mean);
  a.m2 += fmaf(delta * delta, a.count * share, b.m2);
  a.count = count;
}

// moments [2, C] = mean and biased variance, from partial [parts, 2, C] = each part's mean and M2.
struct MergeMoments {
  float* moments;  // [2, C]  =
  float* partial;  // [parts, 2, C], overwritten
  int rows_of_part, rows, C;
  int parts = ceil_div(rows, rows_of_part);
};
void merge_moments(const MergeMoments&, cudaStream_t);

// Of a matrix in memory.
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
