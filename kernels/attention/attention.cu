// attention forward: for each image and head, over the packed projections qkv [B, N, 3, H, D],
//   S = Q K^T / sqrt(D),  P = softmax(S) over keys,  out = (P * mask / (1 - drop)) V
//   lse = log sum over keys of exp(S)                                   all =, saved for backward
// Rows are the queries, the first Q tokens of each image; all tokens are keys. fp16 and bf16 use
// mma.sync; P is rounded to 16 bits, sums are fp32. fp32: attention_fp32.cu.
//
// Flash-style (Dao et al. 2022): S and P exist in registers only. The online softmax works in base
// 2: P is exp2(S log2(e) / sqrt(D) - row_max), and out and row_sum are relative to the same row_max
// until out is divided. row_max, the running maximum, is raised only when a score exceeds it by 8;
// 16-bit P and fp32 sums have that headroom of 2^8, so a row is rescaled about once.
//
//   grid   one block per head if there are many heads, else several blocks share a head's queries
//   block  4 warps share K and V in shared memory. If the whole head fits, they compute as soon as
//          its first 64 keys have arrived; otherwise they alternate between two tiles of 64 keys.
//   warp   a tile of 32 queries (16 if D = 128); loops over all keys, 32 at a time, then 16
//   lane   rows lane / 4 and lane / 4 + 8 of each 16 queries: mma m16n8k16's layout
//
// mma, exp2, ldmatrix, instruction issue and (without L2 hits) memory take about equally long, so
// the limit is how well an SM's warps overlap them. With dropout, Philox is the limit. Registers
// and blocks per SM: tests/kernels/resources.txt.
#include <algorithm>

#include "kernels/attention/attention.cuh"
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// A thread computes one query of one head: a row of out.
template <class T>
__global__ void attention_forward_plain(AttentionForward op) {
  const auto [B, N, H, D, Q] = op.shape;
  const size_t i = thread_number();  // of [B, Q, H]
  if (i >= size_t(B) * Q * H) return;
  const int h = i % H, q = i / H % Q, b = i / H / Q;
  const size_t token = size_t(3) * H * D;  // stride between tokens
  const T* query = as<T>(op.qkv) + (size_t(b) * N + q) * token + h * D;
  const T* keys = as<T>(op.qkv) + size_t(b) * N * token + (H + h) * D;
  const T* values = keys + H * D;
  const float scale = 1 / sqrtf(D);

  float max = -INFINITY;  // the largest score, so that no exponential overflows
  for (int key = 0; key < N; ++key) max = fmaxf(max, dot(query, keys + key * token, D) * scale);
  float sum = 0, out[max_head_dim] = {};
  for (int key = 0; key < N; ++key) {
    const float p = expf(dot(query, keys + key * token, D) * scale - max);
    const float kept = p * dropout_factor(op, b, h, q, key);
    sum += p;
    for (int d = 0; d < D; ++d) out[d] += kept * to_float(values[key * token + d]);
  }
  for (int d = 0; d < D; ++d) as<T>(op.out)[i * D + d] = from_float<T>(out[d] / sum);
  op.lse[(size_t(b) * H + h) * Q + q] = max + logf(sum);
}

// ---- 16 bits, on tensor cores -------------------------------------------------------------------

constexpr int warps = 4, threads = warps * warp_size;
constexpr int kv_tile = 64;  // keys that are copied together
// Blocks per SM: limited by registers (more with dropout) and, on Turing, by shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int max_blocks = 2;
#else
constexpr int max_blocks = 4;
#endif
template <int D, bool dropout>
constexpr int blocks_per_sm = std::min(max_blocks, D == 128 ? 2 : (D == 32 ? 4 : 3) - int(dropout));

template <int D>
constexpr int m_tiles = D == 128 ? 1 : 2;  // of 16 queries, per warp
template <int D>
constexpr int q_tile_rows = 16 * m_tiles<D>;

// A warp's queries. row_max and row_sum: [m][half] is row lane / 4 + 8 * half of m-tile m.
template <int D>
struct QTile {
  static constexpr int ms = m_tiles<D>;
  uint32_t q[ms][D / 16][4];  // operand A
  float o[ms][D / 8][4];      // accumulators of P V, not yet divided by row_sum
  float row_max[ms][2];       // at most 8 below the largest score so far, in base 2
  float row_sum[ms][2];       // of P in this lane's columns
};

constexpr float rescale_threshold = 8;
constexpr float initial_max = -0x1p127f;  // not -inf, whose differences are NaN

// Rows past the end are clamped to the last row; their results are discarded.
template <class T, int D>
__device__ void load_queries(QTile<D>& tile, Rows<const T> q, int query, int Q) {
  const int lane = mov_tid_x() % warp_size;
#pragma unroll
  for (int m = 0; m < tile.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(query + m * 16 + half * 8 + lane / 4, Q - 1);
      set_row(tile.q[m], half, RowChunks<T, D>(q[row]));
    }
}

// s = Q K^T. k: the byte offset in `rows` of this lane's ldmatrix row among the first 16 keys.
template <class T, int D, int n_tiles>
__device__ void compute_scores(float (&s)[m_tiles<D>][n_tiles][4], const QTile<D>& tile,
                               const char* rows, int k) {
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
#pragma unroll
    for (int n = 0; n < n_tiles; n += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, rows + ((k ^ 32 * d) + n * 8 * int(D * sizeof(T))));
#pragma unroll
      for (int m = 0; m < tile.ms; ++m) {
        mma_m16n8k16<T>(s[m][n], tile.q[m][d], b[0], b[1]);
        mma_m16n8k16<T>(s[m][n + 1], tile.q[m][d], b[2], b[3]);
      }
    }
}

// Masks keys from `left` on with -inf; returns whether a score exceeds row_max by the threshold.
template <bool masked, int D, int n_tiles>
__device__ bool mask_and_compare(float (&s)[m_tiles<D>][n_tiles][4], const QTile<D>& tile, int left,
                                 float scale) {
  bool exceeds = false;
#pragma unroll
  for (int m = 0; m < tile.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = -INFINITY;
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[m][n][2 * half + i];
          if (masked && n * 8 + int(threadIdx.x % 4 * 2) + i >= left) score = -INFINITY;
          max = fmaxf(max, score);
        }
      exceeds |= fmaf(max, scale, -tile.row_max[m][half]) > rescale_threshold;
    }
  return exceeds;
}

// Raises row_max to the largest score so far.
template <int D, int n_tiles>
__device__ void rescale(QTile<D>& tile, const float (&s)[m_tiles<D>][n_tiles][4], float scale) {
#pragma unroll
  for (int m = 0; m < tile.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = s[m][0][2 * half];
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
        max = fmaxf(max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      const float row_max = fmaxf(tile.row_max[m][half], warp_max<4>(max) * scale);
      const float factor = ex2_approx_ftz(tile.row_max[m][half] - row_max);
      tile.row_max[m][half] = row_max;
      tile.row_sum[m][half] *= factor;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        tile.o[m][d][2 * half] *= factor;
        tile.o[m][d][2 * half + 1] *= factor;
      }
    }
}

// P = exp2(s * scale - row_max), row_sum += P, o += (P * mask) V. v: as k in compute_scores, for V.
template <class T, bool dropout, int D, int n_tiles>
__device__ void add_pv(QTile<D>& tile, const float (&s)[m_tiles<D>][n_tiles][4], const char* rows,
                       int v, float scale, const uint32_t (&keep)[2 * m_tiles<D>]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < n_tiles / 2; ++j) {
    uint32_t p[tile.ms][4];
#pragma unroll
    for (int m = 0; m < tile.ms; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * j + i / 2, half = i % 2;
        float pair[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          pair[e] = ex2_approx_ftz(fmaf(s[m][n][2 * half + e], scale, -tile.row_max[m][half]));
          tile.row_sum[m][half] += pair[e];
          if (dropout && !(keep[2 * m + half] >> column & 1u << (n * 8 + e))) pair[e] = 0;
        }
        p[m][i] = cvt_rn_x2<T>(pair[0], pair[1]);
      }
#pragma unroll
    for (int d = 0; d < D / 8; d += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, rows + ((v ^ 16 * d) + j * 16 * int(D * sizeof(T))));
#pragma unroll
      for (int m = 0; m < tile.ms; ++m) {
        mma_m16n8k16<T>(tile.o[m][d], p[m], b[0], b[1]);
        mma_m16n8k16<T>(tile.o[m][d + 1], p[m], b[2], b[3]);
      }
    }
  }
}

// One step over `keys` keys, of which `left` exist. keep: dropout decisions as bits, per row.
template <class T, int D, int keys, bool masked, bool dropout>
__device__ void attend(QTile<D>& tile, const char* rows, int k, int v, int left, float scale,
                       const uint32_t (&keep)[2 * m_tiles<D>]) {
  float s[m_tiles<D>][keys / 8][4]{};
  compute_scores<T, D>(s, tile, rows, k);
  if (__any_sync(~0u, mask_and_compare<masked, D>(s, tile, left, scale)))
    rescale<D>(tile, s, scale);
  add_pv<T, dropout, D>(tile, s, rows, v, scale, keep);
}

template <class T, int D>
__device__ void write_queries(QTile<D>& tile, Rows<T> out, float* lse, int query, int Q,
                              float keep_factor) {
  const int lane = mov_tid_x() % warp_size;
  int left = Q - query - lane / 4;  // rows up to Q
  lse += query + lane / 4;
  T* row = out[query + lane / 4] + lane % 4 * 8;
#pragma unroll
  for (int m = 0; m < tile.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = warp_sum<4>(tile.row_sum[m][half]);
      const float factor = keep_factor * rcp_approx_ftz(sum);
      if (lane % 4 == 0 && left > 0)
        *lse = (tile.row_max[m][half] + lg2_approx_ftz(sum)) * 0.693147181f;
      store_row<T>(row, tile.o[m], half, factor, left > 0);
      left -= 8, lse += 8, row += 8 * out.stride;
    }
}

// Waits until at most `pending` of this thread's groups of copies are in flight.
__device__ inline void wait_for_copies(int pending) {
  if (pending <= 0)
    cp_async_wait<0>();
  else if (pending == 1)
    cp_async_wait<1>();
  else if (pending == 2)
    cp_async_wait<2>();
  else
    cp_async_wait<3>();
}

// Block (part, h, b): parts divide a head's queries. capacity: keys that shared memory holds.
template <class T, int D, bool dropout>
__global__ void __launch_bounds__(threads, (blocks_per_sm<D, dropout>))
    attention_forward(AttentionForward op, int capacity) {
  await_kernel_ahead();
  const int b = blockIdx.z, h = blockIdx.y, head = b * op.shape.H + h, N = op.shape.N,
            Q = op.shape.Q, parts = gridDim.x;
  // The part and the warp with the least work change from head to head.
  const int turn = head + head / 4;
  const int part = turn % 2 ? parts - 1 - blockIdx.x : blockIdx.x;
  const auto* qkv = static_cast<const T*>(op.qkv);

  const int lane = threadIdx.x % warp_size;
  T* const k = shared<Pack<T>>().at;  // [2, capacity, D]: K, V; sized at launch
  T* const v = k + capacity * D;
  const auto row_of = [=](int key) { return key < capacity ? key : key % (2 * kv_tile); };
  const auto copy_tile = [&](int key) {
    const int rows = min(kv_tile, ceil_div(N - key, 16) * 16), at = row_of(key) * D;
    copy_rows_async<D, threads>(k + at, rows_of(qkv, op, 3, 1, b, h), key, rows, N);
    copy_rows_async<D, threads>(v + at, rows_of(qkv, op, 3, 2, b, h), key, rows, N);
    cp_async_commit();
  };
  int copied = 0;  // number of keys whose copies have begun
  for (; copied < min(N, capacity); copied += kv_tile) copy_tile(copied);

  const float scale = log2_e / sqrtf(D);
  const auto* rows = reinterpret_cast<const char*>(k);
  constexpr int row_bytes = D * sizeof(T);
  const int lane_bytes = lane_offset_nk<D>(lane) * int(sizeof(T));
  const int v_bytes = capacity * row_bytes + lane_offset<D>(lane) * int(sizeof(T)) - lane_bytes;
  constexpr int block_queries = warps * q_tile_rows<D>;
  for (int first = part * block_queries; first < Q; first += parts * block_queries) {
    const int query = first + (mov_tid_x() / warp_size + turn) % warps * q_tile_rows<D>;
    QTile<D> q_tile{};
#pragma unroll
    for (int m = 0; m < q_tile.ms; ++m) q_tile.row_max[m][0] = q_tile.row_max[m][1] = initial_max;
    if (query < Q) load_queries<T>(q_tile, rows_of(qkv, op, 3, 0, b, h), query, Q);

    int tile = 0;
    do {
      if (first == part * block_queries) {
        wait_for_copies((copied - tile) / kv_tile - 1);
        __syncthreads();
      }
      if (query < Q) {
        int key = tile, at = row_of(tile) * row_bytes + lane_bytes;
        const int end = min(tile + kv_tile, N);
        const auto step = [&]<int keys, bool masked> {
          uint32_t keep[2 * m_tiles<D>]{};
          if constexpr (dropout)
            keep_bits<2 * m_tiles<D>, keys>(keep, KeepDecisions(op, b),
                                            (uint64_t(h) * N + query + lane / 4) * N + key, 8u * N);
          attend<T, D, keys, masked, dropout>(q_tile, rows, at, at + v_bytes, end - key, scale,
                                              keep);
          key += keys, at += keys * row_bytes;
        };
        while (key + 32 <= end) step.template operator()<32, false>();
        while (key < end) step.template operator()<16, true>();
      }
      if (copied < N) {  // overwrites this tile
        __syncthreads();
        copy_tile(copied);
        copied += kv_tile;
      }
    } while ((tile += kv_tile) < N);
    if (query < Q)
      write_queries<T>(q_tile, rows_of(static_cast<T*>(op.out), op, 1, 0, b, h),
                       op.lse + int64_t{head} * Q, query, Q, dropout ? keep_scale(op.drop) : 1);
  }
}

template <class T, int D, bool dropout>
void launch_forward(const AttentionForward& op, const DeviceProps& props, cudaStream_t stream) {
  // All keys at once if that leaves as many blocks per SM as registers allow, else two tiles.
  const size_t key_bytes = 2 * D * sizeof(T);
  constexpr int blocks = blocks_per_sm<D, dropout>;
  const int fitting = static_cast<int>(((props.shared_bytes + 1024) / blocks - 1024) / key_bytes);
  const int all = ceil_div(op.shape.N, 16) * 16;
  const int capacity = all <= std::max(fitting, 2 * kv_tile) ? all : 2 * kv_tile;
  // With many heads, a block handles all queries of a head; otherwise, or if the head doesn't fit,
  // each warp handles one q_tile.
  const int max_parts = ceil_div(op.shape.Q, warps * q_tile_rows<D>);
  const bool many_heads = int64_t{op.shape.B} * op.shape.H >= 4 * props.sms;
  const dim3 grid(capacity == all && many_heads ? 1 : max_parts, op.shape.H, op.shape.B);
  launch<attention_forward<T, D, dropout>>(grid, threads, capacity * key_bytes, stream, op,
                                           capacity);
}

}  // namespace

template <>
size_t CudaKernels::workspace(const AttentionForward&) {
  return 0;
}

template <>
void CudaKernels::run(const AttentionForward& op, cudaStream_t stream) {
  check_attention(op, props_, "AttentionForward");
  if (op.dtype == DType::fp32) return attention_forward_fp32(op, stream);
  by_variant(
      op, [&]<class T, int D, bool dropout> { launch_forward<T, D, dropout>(op, props_, stream); });
}

template <>
void PlainKernels::run(const AttentionForward& op, cudaStream_t stream) {
  check_head_dim_plain(op, "AttentionForward");
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<attention_forward_plain<T>>(size_t(op.shape.B) * op.shape.Q * op.shape.H, stream,
                                            op);
  });
}

}  // namespace bv::BAREVISION_GPU
