// What the attention kernels share: where rows lie, what is refused, dropout's decisions, and tiles
// of 16-bit rows in shared memory.
#pragma once
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/philox.h"

namespace bv::BAREVISION_GPU {

// fp32 by plain FMA: attention_fp32.cu. The operation has been checked.
void attention_forward_fp32(const AttentionForward&, const DeviceProps&, cudaStream_t);
void attention_backward_fp32(const AttentionBackward&, const DeviceProps&, cudaStream_t);
size_t attention_backward_fp32_workspace_bytes(const AttentionBackward&);

// Sizes and dtype; pointers are the caller's to check.
template <class Op>
void check_attention(const Op& op, const DeviceProps& props, const char* name) {
  require(op.shape.D == 32 || op.shape.D == 64 || op.shape.D == 128, name,
          "D: head dim %d: no kernel for it; there are 32, 64 and 128", op.shape.D);
  require(op.shape.N <= 1 << 20, name, "N: at most %d tokens", 1 << 20);
  require(op.shape.B < 1 << 16 && op.shape.H < 1 << 16, name, "B, H: at most %d", (1 << 16) - 1);
  require(int64_t{op.shape.B} * op.shape.H <= INT32_MAX, name, "B * H: at most %d", INT32_MAX);
  require(op.dtype != DType::bf16 || props.arch >= 80, name, "bf16 needs sm_80 or newer");
}

// Calls f.template operator()<D>() with the head dim as a constant.
template <class F>
void by_head_dim(int D, F f) {
  if (D == 32) return f.template operator()<32>();
  if (D == 64) return f.template operator()<64>();
  f.template operator()<128>();
}

// A head's rows in [B, N, parts, H, D]: row n at data + n * stride. They start at multiples of 64
// bytes.
template <class T>
struct Rows {
  T* data;
  int stride;

  __device__ T* operator[](int n) const { return data + int64_t{n} * stride; }
};
// parts, part: 3 and 0, 1, 2 for Q, K, V in qkv; 1 and 0 for out.
template <class T, class Op>
__device__ Rows<T> rows_of(T* data, const Op& op, int parts, int part, int b, int h) {
  const int stride = parts * op.shape.H * op.shape.D;
  return {data + (int64_t{b} * op.shape.N * stride + (part * op.shape.H + h) * op.shape.D), stride};
}

// ---- dropout ------------------------------------------------------------------------------------
// What P is multiplied with where it is kept.
__device__ inline float keep_scale(float drop) { return drop < 1 ? 1 / (1 - drop) : 0; }

// The decisions of image b: element i = (h * N + query) * N + key of P is kept where the word i % 4
// of philox(seed, i / 4, position + b, epoch, layer), made uniform, is at least drop.
struct KeepDecisions {
  uint64_t seed;
  uint32_t position, epoch, layer;
  uint32_t threshold;  // of a word's upper 24 bits, which are what uniform() takes

  template <class Op>
  __device__ KeepDecisions(const Op& op, int b)
      : seed(op.params->seed),
        position(op.params->position + static_cast<uint32_t>(b)),
        epoch(op.params->epoch),
        layer(op.layer),
        threshold(static_cast<uint32_t>(ceilf(op.drop * 0x1p24f))) {}

  // Decisions 4 * quad to 4 * quad + 3 as bits 0 to 3.
  __device__ uint32_t four(uint64_t quad) const {
    const Philox4 words = philox(seed, static_cast<uint32_t>(quad), position, epoch, layer);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // in one expression, g++ 12 with -fsanitize=undefined loses i
      const uint32_t kept = words.at[i] >> 8 >= threshold;
      bits |= kept << i;
    }
    return bits;
  }
};

// Decisions first + row * stride + k of `rows` rows as bit k of bits[row], k = 0 .. keys-1. Four
// lanes of the same lane / 4 ask for the same and share the work: four decisions cost one of them
// one call of Philox, whatever `first` modulo 4. A whole warp's call.
template <int rows, int keys>
__device__ void keep_bits(uint32_t (&bits)[rows], const KeepDecisions& keep, uint64_t first,
                          uint64_t stride) {
  static_assert((keys == 16 || keys == 32) && rows <= 4);
  const auto lane = threadIdx.x % 4;
  const auto gather = [](uint32_t x) {  // of the four lanes
    x |= __shfl_xor_sync(~0u, x, 1);
    return x | __shfl_xor_sync(~0u, x, 2);
  };
  // The last decisions of a row that starts within four: lane r's, of row r.
  const uint64_t last = (first + lane % rows * stride) / 4 + keys / 4;
  const uint32_t lasts = gather(lane < rows ? keep.four(last) << 4 * lane : 0);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const uint64_t begin = first + r * stride;
    uint32_t mine = 0;
#pragma unroll
    for (int part = 0; part < keys / 16; ++part)
      mine |= keep.four(begin / 4 + part * 4 + lane) << (part * 16 + 4 * lane);
    const uint64_t all = uint64_t{lasts >> 4 * r & 15} << keys | gather(mine);
    bits[r] = static_cast<uint32_t>(all >> begin % 4);
  }
}

// ---- tiles of 16-bit rows in shared memory ------------------------------------------------------
// Chunk c (16 bytes) of row r lies where the c-th, exclusive or with some bits of r, would: the
// eight rows that an ldmatrix reads at the same c then lie in different banks.
template <int D>
__device__ constexpr int swizzled(int row, int chunk) {  // in elements
  constexpr int chunks = D / 8;
  return row * D + (chunk ^ (chunks >= 8 ? row % 8 : row / 2 % chunks)) * 8;
}

// Starts the copies of rows[first], ... to rows 0 ... `rows` - 1 of the tile; those from `end` on
// become zeros. By all threads of the block.
template <int D, int threads, class T>
__device__ void copy_rows_async(T* tile, Rows<const T> source, int first, int rows, int end) {
  constexpr int chunks = D / 8, step = threads / chunks;
  static_assert(step % 8 == 0, "the swizzle is the same from step to step");
  const auto thread = mov_tid_x();
  int row = static_cast<int>(thread / chunks);
  const int chunk = static_cast<int>(thread % chunks);
  const T* from = source[first + row] + chunk * 8;
  T* to = tile + swizzled<D>(row, chunk);
  for (; row < rows; row += step, from += step * source.stride, to += step * D)
    cp_async_16(to, from, first + row < end);
}

// ---- fragments ----------------------------------------------------------------------------------
// Lane t of four (same lane / 4) has the words [t][0 .. 3] of a 4x4 matrix and gets
// [0 .. 3][t]: between fragments, where a lane has columns 2t and 2t+1 of four 8x8 matrices, and
// memory, where it has all columns of matrix t. A whole warp's call.
__device__ inline void transpose_in_four(uint32_t (&x)[4]) {
  const auto swap = [](uint32_t& low, uint32_t& high, int bit) {
    const bool upper = threadIdx.x & static_cast<unsigned>(bit);
    const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, bit);
    low = upper ? got : low;
    high = upper ? high : got;
  };
  swap(x[0], x[1], 1), swap(x[2], x[3], 1);
  swap(x[0], x[2], 2), swap(x[1], x[3], 2);
}

}  // namespace bv::BAREVISION_GPU
