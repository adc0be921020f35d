// Shared by Hopper's attention kernels: places in shared memory, and TMA tensor maps of heads.
#pragma once
#include <algorithm>

#include "kernels/attention/attention.cuh"
#include "kernels/cuda/hopper/hopper_kernels.h"
#include "kernels/gemm/sm90_tiles.h"

namespace bv::BAREVISION_GPU {

// The place of the block's i-th tile; its mbarriers have completed i / places phases before.
template <int places>
struct Place {
  unsigned at, parity;
  __device__ explicit Place(unsigned i) : at(i % places), parity(i / places % 2) {}
};

// One arrival for the whole warp.
__device__ inline void arrive(uint64_t* mbarrier) {
  __syncwarp();
  if (threadIdx.x % warp_size == 0) mbarrier_arrive(mbarrier);
}

// A tensor [B, N, rows, D]; TMA accesses only the first `tokens` tokens of each image.
struct Heads {
  const void* at;
  int B, N, tokens, rows, D;
};
// A copy transfers one of the rows of `box_tokens` tokens, at most 64 of its channels.
inline CUtensorMap head_map(DType dtype, const Heads& heads, int box_tokens) {
  const uint64_t row = size_of(dtype) * unsigned(heads.D), token = row * unsigned(heads.rows);
  return sm90::map_or_throw(
      make_map(TiledTensor{.address = heads.at,
                           .type = sm90::element_type(dtype),
                           .rank = 4,
                           .size = {unsigned(heads.D), unsigned(heads.rows), unsigned(heads.tokens),
                                    unsigned(heads.B)},
                           .stride = {row, token, token * unsigned(heads.N)},
                           .box = {unsigned(std::min(heads.D, 64)), 1, unsigned(box_tokens), 1},
                           .swizzle = heads.D == 32 ? Swizzle::b64 : Swizzle::b128}),
      "a head");
}

}  // namespace bv::BAREVISION_GPU
