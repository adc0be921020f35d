// Shared by the attention kernels: argument checks, access to a head's rows, dropout decisions and,
// for fp16 and bf16, swizzled tiles in shared memory and the operands of mma.
#pragma once
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/philox.h"

namespace bv::BAREVISION_GPU {

constexpr float log2_e = 1.44269504f;

// fp32 with plain FMA: attention_fp32.cu. Arguments are already checked; needs no workspace.
void attention_forward_fp32(const AttentionForward&, cudaStream_t);
void attention_backward_fp32(const AttentionBackward&, cudaStream_t);

// ---- plain kernels ------------------------------------------------------------------------------
constexpr int max_head_dim = 128;

template <class Op>
void check_head_dim_plain(const Op& op, const char* name) {
  require(op.shape.D <= max_head_dim, name, "D: head dim %d, but at most %d", op.shape.D,
          max_head_dim);
}

template <class T>
__device__ float dot(const T* a, const T* b, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

// The dropout factor of an element of P: 1 without dropout, else 0 or 1 / (1 - drop).
template <class Op>
__device__ float dropout_factor(const Op& op, int b, int h, int q, int key) {
  if (op.drop == 0) return 1;
  const uint64_t i = (uint64_t(h) * op.shape.N + q) * op.shape.N + key;
  const Philox4 words = philox(op.params->seed, static_cast<uint32_t>(i / 4),
                               op.params->position + b, op.params->epoch, op.layer);
  return uniform(words.at[i % 4]) >= op.drop ? 1 / (1 - op.drop) : 0;
}

// ---- fast kernels -------------------------------------------------------------------------------
// The limits of the fast kernels.
template <class Op>
void check_attention(const Op& op, const DeviceProps& props, const char* name) {
  require(op.shape.D == 32 || op.shape.D == 64 || op.shape.D == 128, name,
          "D: head dim %d: it must be 32, 64 or 128", op.shape.D);
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
// Calls f.template operator()<T, D, dropout>(): the variants of the 16-bit kernels.
template <class Op, class F>
void by_variant(const Op& op, F f) {
  by_16_bits(op.dtype, [&]<class T> {
    by_head_dim(op.shape.D, [&]<int D> {
      if (op.drop > 0) return f.template operator()<T, D, true>();
      f.template operator()<T, D, false>();
    });
  });
}

// The rows of one head in [B, N, parts, H, D]: row n starts at data + n * stride, 64-byte aligned.
template <class T>
struct Rows {
  T* data;
  int stride;

  __device__ T* operator[](int n) const { return data + int64_t{n} * stride; }
};
// parts, part: 3 and 0, 1, 2 for Q, K, V in qkv; 1 and 0 for out and dout, which hold queries only.
template <class T, class Op>
__device__ Rows<T> rows_of(T* data, const Op& op, int parts, int part, int b, int h) {
  const int stride = parts * op.shape.H * op.shape.D;
  const int tokens = parts == 1 ? op.shape.Q : op.shape.N;
  return {data + (int64_t{b} * tokens * stride + (part * op.shape.H + h) * op.shape.D), stride};
}

// ---- dropout ------------------------------------------------------------------------------------
// Kept elements of P are multiplied by this.
__host__ __device__ inline float keep_scale(float drop) { return drop < 1 ? 1 / (1 - drop) : 0; }

// Dropout decisions for image b; kernels.h defines how they are numbered.
struct KeepDecisions {
  uint64_t seed;
  uint32_t position, epoch, layer;
  uint32_t threshold;  // uniform(word) >= drop, as integers: word >> 8 >= threshold

  template <class Op>
  __device__ KeepDecisions(const Op& op, int b)
      : seed(op.params->seed),
        position(op.params->position + static_cast<uint32_t>(b)),
        epoch(op.params->epoch),
        layer(op.layer),
        threshold(static_cast<uint32_t>(ceilf(op.drop * 0x1p24f))) {}

  // Decisions 4 * quad to 4 * quad + 3 in bits 0 to 3.
  __device__ uint32_t four(uint64_t quad) const {
    const Philox4 words = philox(seed, static_cast<uint32_t>(quad), position, epoch, layer);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Two statements: g++ 12 with -fsanitize=undefined miscompiles a single one.
      const uint32_t kept = words.at[i] >> 8 >= threshold;
      bits |= kept << i;
    }
    return bits;
  }
};

// Bit k of bits[row] is decision first + row * stride + k, for k < keys. The four lanes with equal
// lane / 4 pass equal arguments and share the Philox calls, each of which gives four decisions. A
// row's decisions may start within a group of four, so lane `row` draws one more group at the row's
// end. Called by whole warps.
template <int rows, int keys>
__device__ void keep_bits(uint32_t (&bits)[rows], const KeepDecisions& keep, uint64_t first,
                          uint64_t stride) {
  static_assert((keys == 16 || keys == 32) && rows <= 4);
  const auto lane = threadIdx.x % 4;
  const auto gather = [](uint32_t x) {  // OR over the four lanes
    x |= __shfl_xor_sync(~0u, x, 1);
    return x | __shfl_xor_sync(~0u, x, 2);
  };
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

// Dropout decisions for 16 queries x 16 keys: bit k of the lower (upper) half is for key k of query
// lane / 4 (lane / 4 + 8). Like keep_bits(), but with one Philox call at a time, to save registers.
__device__ inline uint32_t kept_tile(const AttentionBackward& op, int b, int h, int query,
                                     int key) {
  const KeepDecisions keep(op, b);
  const auto N = static_cast<uint64_t>(op.shape.N);
  const int lane = static_cast<int>(mov_tid_x() % 4),
            row = static_cast<int>(mov_tid_x() % warp_size / 4);
  const uint64_t begin = (h * N + query + row) * N + key, begin_below = begin + 8 * N;
  uint32_t kept = 0, kept_below = 0;
#pragma unroll 1
  for (int call = 0; call < 3; ++call) {
    const bool below = call == 2 ? lane % 2 : call;
    const int four = call == 2 ? 4 : lane;
    const uint32_t bits = keep.four((below ? begin_below : begin) / 4 + four) << 4 * four;
    kept |= below ? 0 : bits;
    kept_below |= below ? bits : 0;
  }
  for (int bits = 1; bits < 4; bits *= 2) {
    kept |= __shfl_xor_sync(~0u, kept, bits);
    kept_below |= __shfl_xor_sync(~0u, kept_below, bits);
  }
  return (kept >> begin % 4 & 0xFFFF) | kept_below >> begin_below % 4 << 16;
}

// ---- tiles of 16-bit rows in shared memory ------------------------------------------------------
// XOR swizzle: chunk c (16 bytes) of row r is stored at chunk c ^ (r % 8), so that the 8 rows of an
// ldmatrix fall into different banks. In rows of 4 chunks, chunk c is at c ^ (r / 2 % 4).
template <int D>
__device__ constexpr int swizzled_element(int row, int chunk) {
  constexpr int chunks = D / 8;
  return row * D + (chunk ^ (chunks >= 8 ? row % 8 : row / 2 % chunks)) * 8;
}

// Starts copying `rows` rows of the source from `first` on into a tile, with zeros from row `end`
// on. Called by all threads of the block.
template <int D, int threads, class T>
__device__ void copy_rows_async(T* tile, Rows<const T> source, int first, int rows, int end) {
  constexpr int chunks = D / 8, step = threads / chunks;
  static_assert(step % 8 == 0, "every step has the same swizzle");
  const auto thread = mov_tid_x();
  int row = static_cast<int>(thread / chunks);
  const int chunk = static_cast<int>(thread % chunks);
  const T* from = source[first + row] + chunk * 8;
  T* to = tile + swizzled_element<D>(row, chunk);
  for (; row < rows; row += step, from += step * source.stride, to += step * D)
    cp_async_16(to, from, first + row < end);
}

// Element offset of the row that this lane passes to ldmatrix_x4 for 16 x 16 elements of a tile;
// columns from 16 s on are at offset ^ 16 s. Matrices 0 to 3 are the quadrants in column order:
// operand A, or with _trans two operands B of a tile [k][n].
template <int D>
__device__ int lane_offset(int lane) {
  return swizzled_element<D>(lane % 16, lane / 16);
}
// The same with the quadrants in row order: two operands B of a tile [n][k].
template <int D>
__device__ int lane_offset_nk(int lane) {
  return swizzled_element<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// ---- operands and accumulators of mma m16n8k16 --------------------------------------------------
// A lane holds elements of two rows: lane / 4 (half 0) and lane / 4 + 8 (half 1). In registers, its
// elements are columns 2t and 2t+1 (t = lane % 4) of every 8 columns; in memory, where 16 bytes are
// moved at once, they are chunk t of every 4 chunks.

// A 4x4 transpose over four lanes: lane t passes the words [t][0 .. 3] and gets [0 .. 3][t].
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

// This lane's chunks of a row; zeros if the row is not in bounds.
template <class T, int D>
struct RowChunks {
  Pack<T> at[D / 32];

  __device__ explicit RowChunks(const T* row, bool in_bounds = true) {
    row += mov_tid_x() % 4 * 8;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) at[c] = in_bounds ? load_pack(row + 32 * c) : Pack<T>{};
  }
};

template <class T, int D>
__device__ void set_row(uint32_t (&a)[D / 16][4], int half, const RowChunks<T, D>& row) {
#pragma unroll
  for (int c = 0; c < D / 32; ++c) {
    uint32_t x[4];
    memcpy(x, &row.at[c], 16);
    transpose_in_four(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[2 * c + i / 2][half + i % 2 * 2] = x[i];
  }
}

// row = sums * factor, if in bounds.
template <class T, int D8>
__device__ void store_row(T* row, const float (&sums)[D8][4], int half, float factor,
                          bool in_bounds) {
#pragma unroll
  for (int c = 0; c < D8 / 4; ++c) {
    uint32_t x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] =
          cvt_rn_x2<T>(sums[4 * c + i][2 * half] * factor, sums[4 * c + i][2 * half + 1] * factor);
    transpose_in_four(x);
    if (in_bounds) st_global(reinterpret_cast<uint4*>(row + 32 * c), {x[0], x[1], x[2], x[3]});
  }
}

}  // namespace bv::BAREVISION_GPU
