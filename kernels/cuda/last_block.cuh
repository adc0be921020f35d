// What the last block of a launch to finish does for all of them, so that no second launch need do it.
#pragma once
#include "kernels/cuda/column_sums.cuh"

namespace bv::BAREVISION_GPU {

// Whether this block, with all threads here, is the last of `blocks`: then it sees what the others
// wrote before. `arrived` is 0 between launches, and theirs alone while they run.
__device__ inline bool is_last_block(unsigned* arrived, unsigned blocks) {
  __threadfence();  // before the block is counted, what each of its threads wrote
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1u) == blocks - 1;
    if (last) *arrived = 0;
  }
  last = __syncthreads_or(last);
  __threadfence();
  return last;
}

// column_sums_finish by one block, for few columns: out and out2 (+)= the blocks' sums, in an order
// of its own. Groups of threads add every groups-th block, four columns a thread, and then the groups
// are added. C is a multiple of 4 and C / 2 at most blockDim.x; scratch holds blockDim.x.
__device__ inline void finish_column_sums_here(const ColumnSums& a, float4* scratch) {
  const int quads = a.C / 2, groups = blockDim.x / quads;
  const int quad = threadIdx.x % quads, group = threadIdx.x / quads;
  const auto* partial = reinterpret_cast<const float4*>(a.partial);
  const auto add = [](float4& sum, const float4& x) {
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  };
  float4 sum{0, 0, 0, 0};
  if (group < groups) {
#pragma unroll 8
    for (int b = group; b < a.blocks; b += groups)
      add(sum, __ldcg(&partial[static_cast<size_t>(b) * quads + quad]));
    scratch[threadIdx.x] = sum;
  }
  __syncthreads();
  if (group > 0) return;
  for (int g = 1; g < groups; ++g) add(sum, scratch[g * quads + quad]);
  const int column = quad * 4;
  auto* out = reinterpret_cast<float4*>(column < a.C ? a.out + column : a.out2 + (column - a.C));
  if (a.accumulate) add(sum, *out);
  *out = sum;
}

}  // namespace bv::BAREVISION_GPU
