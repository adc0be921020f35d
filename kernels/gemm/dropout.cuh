// Dropout and drop path (Drop, kernels.h) of the rows that a kernel processes.
#pragma once
#include "kernels/cuda/ptx.cuh"
#include "kernels/philox.h"

namespace bv::BAREVISION_GPU {

__device__ inline float keep_factor(const Drop& drop, bool kept) {
  return kept ? rcp_approx_ftz(1 - drop.drop) : 0;
}
// A dropped infinity is 0, too.
__device__ inline float times(float x, float factor) { return factor > 0 ? x * factor : 0; }

// Whether drop path keeps a row of the residual.
template <class Op>
__device__ bool is_kept(const Op& op, unsigned row) {
  const Drop& path = op.drop_path;
  if (path.drop == 0) return true;
  const StepParams& params = *op.params;
  const Philox4 words =
      philox(params.seed, 0, params.position + row / path.image_rows, params.epoch, path.layer);
  return uniform(words.at[0]) >= path.drop;
}

// A row's dropout. One draw decides columns c to c + 3, if c and C are multiples of 4.
class DroppedRow {
 public:
  template <class Op>
  __device__ DroppedRow(const Op& op, unsigned row, int C) : drop_(op.dropout), params_(op.params) {
    if (!drops()) return;
    image_ = row / drop_.image_rows;
    first_ = (row - image_ * drop_.image_rows) * C;
  }
  __device__ bool drops() const { return drop_.drop > 0; }
  __device__ Philox4 draw(unsigned c) const {
    return philox(params_->seed, (first_ + c) / 4, params_->position + image_, params_->epoch,
                  drop_.layer);
  }
  __device__ float by_word(uint32_t word, float x) const {
    return times(x, keep_factor(drop_, uniform(word) >= drop_.drop));
  }
  // Applies dropout to x, the columns from c on.
  template <int n>
  __device__ void drop(float (&x)[n], unsigned c) const {
    static_assert(n % 4 == 0);
    if (!drops()) return;
#pragma unroll
    for (int k = 0; k < n; k += 4) {
      const Philox4 words = draw(c + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[k + i] = by_word(words.at[i], x[k + i]);
    }
  }
  // The same for column c alone, with any C.
  __device__ float dropped(float x, unsigned c) const {
    if (!drops()) return x;
    const Philox4 words = draw(c);
    const unsigned i = (first_ + c) % 4;  // selects the word below; indexing would use local memory
    const uint32_t low = i & 1 ? words.at[1] : words.at[0];
    const uint32_t high = i & 1 ? words.at[3] : words.at[2];
    return by_word(i & 2 ? high : low, x);
  }

 private:
  const Drop& drop_;
  const StepParams* params_;
  unsigned image_ = 0, first_ = 0;  // the row's image, and its first element's index in the image
};

}  // namespace bv::BAREVISION_GPU
