// Drop path (kernels.h) of a row, for layer norm's kernels and products that compute it.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/philox.h"

namespace bv::BAREVISION_GPU {

// Whether drop path keeps a row of the residual, and then the row's factor; 0 drops it.
template <class Op>
__device__ bool is_kept(const Op& op, unsigned row) {
  const DropPath& path = op.drop_path;
  if (path.drop == 0) return true;
  const StepParams& params = *op.params;
  const Philox4 words =
      philox(params.seed, 0, params.position + row / path.image_rows, params.epoch, path.layer);
  return uniform(words.at[0]) >= path.drop;
}
template <class Op>
__device__ float keep_factor(const Op& op, bool kept) {
  return kept ? rcp_approx_ftz(1 - op.drop_path.drop) : 0;
}
// A dropped infinity is 0, too.
__device__ inline float times(float x, float factor) { return factor > 0 ? x * factor : 0; }

}  // namespace bv::BAREVISION_GPU
