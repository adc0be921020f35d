// attention backward: for each image and head, with dP' = dout V^T * mask / (1 - drop) and
// delta = rowsum(dout * out):
//   P = exp(Q K^T / sqrt(D) - lse),  dS = P * (dP' - delta)
//   dQ = dS K / sqrt(D),  dK = dS^T Q / sqrt(D),  dV = (P * mask / (1 - drop))^T dout     all =
// over packed qkv [B, N, 3, H, D]. Only the first Q tokens of each image are queries; dQ is 0 for
// the others. Saved by forward: out and lse. fp16 and bf16 use mma.sync; P and dS are rounded to 16
// bits, sums are fp32. fp32: attention_fp32.cu.
//
//   grid   one block per head; with few heads, one per phase and round of 64 rows of a head
//   block  4 warps, two phases. The queries phase loops over K and V in shared memory and computes
//          delta and dQ; the keys phase loops over Q and dout and computes dK and dV
//   warp   16 rows at a time, in registers as mma's operand A
//   lane   rows lane / 4 and lane / 4 + 8 of the 16: mma m16n8k16's layout
// An mma's accumulators have the layout of the next mma's operand A, so P and dS stay in registers;
// warps synchronise only to load tiles, and each warp owns its sums: one fixed order, no atomics.
// The price is computing S and dP' twice: 7 products instead of 5. A block with a single round of
// the keys phase recomputes delta from out and dout in the same order, so that the grid doesn't
// change the results' bits.
//
// Limited by shared memory bandwidth: each ldmatrix feeds only two mmas. With dropout, by Philox.
// Registers and blocks per SM: tests/kernels/resources.txt.
#include "kernels/attention/attention.cuh"
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// P after dropout, and dS, for one query and one key.
struct Score {
  float dropped;  // P * mask / (1 - drop)
  float ds;
};
template <class T>
__device__ Score score(const AttentionBackward& op, int b, int h, int q, int key) {
  const auto [B, N, H, D, Q] = op.shape;
  const size_t token = size_t(3) * H * D, row = (size_t(b) * Q + q) * H + h;
  const T* qkv = as<T>(op.qkv) + size_t(b) * N * token + h * D;
  const T *k = qkv + key * token + H * D, *v = k + H * D, *dout = as<T>(op.dout) + row * D;
  const float p = expf(dot(qkv + q * token, k, D) / sqrtf(D) - op.lse[(size_t(b) * H + h) * Q + q]);
  const float factor = dropout_factor(op, b, h, q, key);
  const float delta = dot(dout, as<T>(op.out) + row * D, D);
  return {p * factor, p * (dot(dout, v, D) * factor - delta)};
}

// A thread computes dQ of one query of one head.
template <class T>
__global__ void attention_backward_queries_plain(AttentionBackward op) {
  const auto [B, N, H, D, Q] = op.shape;
  const size_t i = thread_number(), token = size_t(3) * H * D;
  if (i >= size_t(B) * N * H) return;
  const int h = i % H, q = i / H % N, b = i / H / N;
  const T* k = as<T>(op.qkv) + size_t(b) * N * token + (H + h) * D;
  float dq[max_head_dim] = {};
  for (int key = 0; q < Q && key < N; ++key) {
    const float ds = score<T>(op, b, h, q, key).ds;
    for (int d = 0; d < D; ++d) dq[d] += ds * to_float(k[key * token + d]);
  }
  T* out = as<T>(op.dqkv) + (size_t(b) * N + q) * token + h * D;
  for (int d = 0; d < D; ++d) out[d] = from_float<T>(dq[d] / sqrtf(D));
}

// A thread computes dK and dV of one key of one head.
template <class T>
__global__ void attention_backward_keys_plain(AttentionBackward op) {
  const auto [B, N, H, D, Q] = op.shape;
  const size_t i = thread_number(), token = size_t(3) * H * D;
  if (i >= size_t(B) * N * H) return;
  const int h = i % H, key = i / H % N, b = i / H / N;
  const T* query = as<T>(op.qkv) + size_t(b) * N * token + h * D;
  float dk[max_head_dim] = {}, dv[max_head_dim] = {};
  for (int q = 0; q < Q; ++q) {
    const Score s = score<T>(op, b, h, q, key);
    const T* dout = as<T>(op.dout) + ((size_t(b) * Q + q) * H + h) * D;
    for (int d = 0; d < D; ++d) {
      dk[d] += s.ds * to_float(query[q * token + d]);
      dv[d] += s.dropped * to_float(dout[d]);
    }
  }
  T* out = as<T>(op.dqkv) + (size_t(b) * N + key) * token + (H + h) * D;
  for (int d = 0; d < D; ++d) {
    out[d] = from_float<T>(dk[d] / sqrtf(D));
    out[H * D + d] = from_float<T>(dv[d]);
  }
}

// ---- 16 bits, on tensor cores -------------------------------------------------------------------

constexpr int warp_rows = 16;  // mma's M
constexpr int threads = 128, block_rows = threads / warp_size * warp_rows;

// Blocks per SM; __launch_bounds__ limits the registers accordingly.
template <int D, bool dropout>
constexpr int blocks = D == 128 || (D == 64 && dropout) ? 2
                       : D == 64                        ? 3
                                                        : 4;
// If registers can't hold the operands and the sums, a warp keeps its rows of V in shared memory.
template <int D>
constexpr bool v_in_shared = D == 128;
template <int D>
constexpr int shared_v = v_in_shared<D> ? D* block_rows : 0;  // elements

__device__ int lane_column() { return static_cast<int>(threadIdx.x % 4 * 2); }
// Recomputed at each call, so that it occupies no register in between.
__device__ int lane_row() { return static_cast<int>(mov_tid_x() % warp_size / 4); }
// First of this warp's rows in a round of block_rows rows. The warps' order rotates from block to
// block, so that the rows of an incomplete last round don't always go to the same scheduler.
__device__ int own_row(int round) {
  return round + static_cast<int>((mov_tid_x() / warp_size + blockIdx.x) % (threads / warp_size)) *
                     warp_rows;
}

// A block computes all rounds of both phases or, if heads are few, one round of one phase.
template <bool few>
__device__ int next_round(int round, int N) {
  return few ? N : round + block_rows;
}

// ---- tiles in shared memory ---------------------------------------------------------------------
struct QueryStats {
  float lse, delta;  // lse in base 2
};
template <class T>
struct Tile {
  T* memory;          // a [rows][D], b [rows][D], swizzled: K and V, or Q and dout
  int b;              // where b begins
  QueryStats* stats;  // [rows]  of Q and dout
  T* own_v;           // [16][D], swizzled: this warp's rows of V, if v_in_shared
  int rows;
  int lane, lane_nk;  // this lane's ldmatrix offsets
};
template <int D>
constexpr int row_bytes = 2 * D * 2 + sizeof(QueryStats);

template <class T, int D>
__device__ Tile<T> tile_of(int rows) {
  T* const memory = shared<Pack<T>>().at;
  auto* const stats = reinterpret_cast<QueryStats*>(memory + 2 * rows * D);
  auto* const own_v = reinterpret_cast<T*>(stats + rows);
  const int lane = static_cast<int>(threadIdx.x % warp_size);
  return {memory,
          rows * D,
          stats,
          own_v + threadIdx.x / warp_size * (warp_rows * D),
          rows,
          lane_offset<D>(lane),
          lane_offset_nk<D>(lane)};
}

// Starts loading the rows of a and b from `first` on, with zeros from row N to a multiple of 16.
template <class T, int D>
__device__ void start_loading(const Tile<T>& tile, Rows<const T> a, Rows<const T> b, int first,
                              int N) {
  const int rows = min(ceil_div(N - first, warp_rows) * warp_rows, tile.rows);
  __syncthreads();  // until all threads are done with the previous tile
  copy_rows_async<D, threads>(tile.memory, a, first, rows, N);
  copy_rows_async<D, threads>(tile.memory + tile.b, b, first, rows, N);
  cp_async_commit();
}

// The dot product of two rows, over the four lanes that share them.
template <class T, int D>
__device__ float dot(const RowChunks<T, D>& a, const RowChunks<T, D>& b) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < D / 32; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.at[c].at[i]) * to_float(b.at[c].at[i]);
  return warp_sum<4>(sum);
}

// Loads lse and delta of the tile's queries. From query Q on, lse is infinite, so that P is 0.
template <class T, int D, bool few>
__device__ void load_stats(const Tile<T>& tile, const AttentionBackward& op, int first,
                           int64_t head) {
  const int Q = op.shape.Q;
  if constexpr (few) {
    const int b = static_cast<int>(blockIdx.x) / op.shape.H,
              h = static_cast<int>(blockIdx.x) % op.shape.H;
    const auto dout = rows_of(static_cast<const T*>(op.dout), op, 1, 0, b, h),
               out = rows_of(static_cast<const T*>(op.out), op, 1, 0, b, h);
#pragma unroll 1
    for (int i = static_cast<int>(mov_tid_x() / 4); i < tile.rows; i += threads / 4) {
      const int row = first + i;
      const float delta =
          dot(RowChunks<T, D>(dout[row], row < Q), RowChunks<T, D>(out[row], row < Q));
      if (threadIdx.x % 4 == 0)
        tile.stats[i] =
            row < Q ? QueryStats{op.lse[head + row] * log2_e, delta} : QueryStats{INFINITY, 0};
    }
  } else {
    const float* const delta = static_cast<const float*>(op.workspace) + head;
#pragma unroll 1  // loads in flight take registers
    for (int i = static_cast<int>(mov_tid_x()); i < tile.rows; i += threads) {
      const int row = first + i;
      tile.stats[i] =
          row < Q ? QueryStats{op.lse[head + row] * log2_e, delta[row]} : QueryStats{INFINITY, 0};
    }
  }
}

// ---- products of a warp -------------------------------------------------------------------------
// Operand A: 16 rows in registers.
template <int D>
struct Operand {
  static constexpr int unroll = D / 16;
  uint32_t at[D / 16][4];

  __device__ void get(int s, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = at[s][i];
  }
};
// The same in shared memory.
template <class T>
struct SharedOperand {
  static constexpr int unroll = 2;
  const T* rows;
  int lane;

  __device__ void get(int s, uint32_t (&a)[4]) const { ldmatrix_x4(a, rows + (lane ^ 16 * s)); }
};

// 16 x 8n accumulators.
template <int n>
struct Sums {
  float at[n][4];

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < n; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) at[j][i] = 0;
  }
};

// Stores a row of V for SharedOperand; the caller's next barrier makes it visible.
template <class T, int D>
__device__ void store_own_v(T* own_v, int half, const RowChunks<T, D>& row) {
  __syncwarp();
#pragma unroll
  for (int c = 0; c < D / 32; ++c)
    store_pack(own_v + swizzled_element<D>(lane_row() + 8 * half,
                                           static_cast<int>(4 * c + mov_tid_x() % 4)),
               row.at[c]);
}

// sums = a b^T, 16 rows of b: memory + offset is this lane's ldmatrix row.
template <class T, int D, class A>
__device__ void multiply_transposed(Sums<2>& sums, const A& operand, const T* memory, int offset) {
  sums.clear();
#pragma unroll A::unroll
  for (int s = 0; s < D / 16; ++s) {
    uint32_t a[4], b[4];
    operand.get(s, a);
    ldmatrix_x4(b, memory + (offset ^ 16 * s));
    mma_m16n8k16<T>(sums.at[0], a, b[0], b[1]);
    mma_m16n8k16<T>(sums.at[1], a, b[2], b[3]);
  }
}

// sums += a b, with a [16, 16] rounded to 16 bits, and 16 rows of b.
template <class T, int D>
__device__ void add_product(Sums<D / 8>& sums, const Sums<2>& a, const T* memory, int offset) {
  const uint32_t operand[4] = {
      cvt_rn_x2<T>(a.at[0][0], a.at[0][1]), cvt_rn_x2<T>(a.at[0][2], a.at[0][3]),
      cvt_rn_x2<T>(a.at[1][0], a.at[1][1]), cvt_rn_x2<T>(a.at[1][2], a.at[1][3])};
#pragma unroll
  for (int s = 0; s < D / 16; ++s) {
    uint32_t b[4];
    ldmatrix_x4_trans(b, memory + (offset ^ 16 * s));
    mma_m16n8k16<T>(sums.at[2 * s], operand, b[0], b[1]);
    mma_m16n8k16<T>(sums.at[2 * s + 1], operand, b[2], b[3]);
  }
}

// to = sums * scale, for rows from `first` on, up to row N.
template <class T, int D>
__device__ void write_rows(Rows<T> to, int first, int N, const Sums<D / 8>& sums, float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane_row() + 8 * half;
    store_row<T>(to[row] + mov_tid_x() % 4 * 8, sums.at, half, scale, row < N);
  }
}

// ---- queries: delta and dQ ----------------------------------------------------------------------
// 16 queries of a warp; [half] is row lane / 4 + 8 * half.
template <int D>
struct QueryRows {
  Operand<D> q, dout;
  float lse[2], delta[2];
  Sums<D / 8> dq;
};

template <bool few, class T, int D>
__device__ void load_queries(QueryRows<D>& own, const AttentionBackward& op, Rows<const T> q,
                             Rows<const T> out, Rows<const T> dout, int first, int64_t head) {
  const int Q = op.shape.Q;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane_row() + 8 * half;
    const RowChunks<T, D> q_row(q[row], row < Q), dout_row(dout[row], row < Q),
        out_row(out[row], row < Q);
    own.delta[half] = dot(dout_row, out_row);
    set_row(own.q.at, half, q_row);
    set_row(own.dout.at, half, dout_row);
    own.lse[half] = row < Q ? op.lse[head + row] * log2_e : INFINITY;
    if (!few && row < Q && threadIdx.x % 4 == 0)
      static_cast<float*>(op.workspace)[head + row] = own.delta[half];
  }
  own.dq.clear();
}

// dQ += dS K for the 16 keys from `row` on, of which those before `end` exist.
template <class T, int D, bool dropout>
__device__ void add_keys(QueryRows<D>& own, const Tile<T>& tile, int row, int end, uint32_t kept,
                         float keep) {
  const float scale = 1 / sqrtf(static_cast<float>(D));
  Sums<2> s, dp;
  multiply_transposed<T, D>(s, own.q, tile.memory, row * D + tile.lane_nk);
  multiply_transposed<T, D>(dp, own.dout, tile.memory, tile.b + row * D + tile.lane_nk);
  const bool whole = row + warp_rows <= end;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 8 * j + i % 2;  // + lane_column()
      float p = ex2_approx_ftz(s.at[j][i] * (scale * log2_e) - own.lse[i / 2]);
      if (!whole && row + key + lane_column() >= end) p = 0;
      if constexpr (dropout) dp.at[j][i] *= kept >> (i / 2 * 16 + key) & 1 ? keep : 0;
      s.at[j][i] = p * (dp.at[j][i] - own.delta[i / 2]);
    }
  add_product<T, D>(own.dq, s, tile.memory, row * D + tile.lane);
}

template <class T, int D, bool dropout, bool few>
__device__ void query_phase(const AttentionBackward& op, const Tile<T>& tile, int b, int h,
                            int round) {
  const auto* const qkv = static_cast<const T*>(op.qkv);
  const auto q = rows_of(qkv, op, 3, 0, b, h), k = rows_of(qkv, op, 3, 1, b, h),
             v = rows_of(qkv, op, 3, 2, b, h);
  const auto dout = rows_of(static_cast<const T*>(op.dout), op, 1, 0, b, h),
             out = rows_of(static_cast<const T*>(op.out), op, 1, 0, b, h);
  const auto dq = rows_of(static_cast<T*>(op.dqkv), op, 3, 0, b, h);
  const int N = op.shape.N, Q = op.shape.Q;
  const int64_t head = int64_t{blockIdx.x} * Q;  // its first row of lse and delta
  const float keep = keep_scale(op.drop);

  for (; round < Q; round = next_round<few>(round, N)) {
    QueryRows<D> own;
    for (int first = 0; first < N; first += tile.rows) {
      if (round == 0 || few || tile.rows < N) start_loading<T, D>(tile, k, v, first, N);
      if (first == 0) load_queries<few, T>(own, op, q, out, dout, own_row(round), head);
      cp_async_wait<0>();
      __syncthreads();
      const int end = own_row(round) >= Q ? 0 : min(N - first, tile.rows);
#pragma unroll 1
      for (int row = 0; row < end; row += warp_rows) {
        uint32_t kept = 0;
        if constexpr (dropout)
          kept = kept_tile(op, b, h, own_row(round), first + row) >> lane_column();
        add_keys<T, D, dropout>(own, tile, row, end, kept, keep);
      }
    }
    write_rows<T, D>(dq, own_row(round), N, own.dq, 1 / sqrtf(static_cast<float>(D)));
  }
  for (; round < N; round = next_round<few>(round, N)) {
    Sums<D / 8> none;
    none.clear();
    write_rows<T, D>(dq, own_row(round), N, none, 1);
  }
}

// ---- keys: dK and dV ----------------------------------------------------------------------------
template <int D>
struct KeyRows {
  Operand<D> k, v;
  Sums<D / 8> dk, dv;
};

template <class T, int D>
__device__ void load_keys(KeyRows<D>& own, T* own_v, Rows<const T> k, Rows<const T> v, int first,
                          int N) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane_row() + 8 * half;
    const RowChunks<T, D> k_row(k[row], row < N), v_row(v[row], row < N);
    set_row(own.k.at, half, k_row);
    if constexpr (v_in_shared<D>)
      store_own_v(own_v, half, v_row);
    else
      set_row(own.v.at, half, v_row);
  }
  own.dk.clear(), own.dv.clear();
}

// dV += P'^T dout, dK += dS^T Q for the 16 queries from `row` on. P and dS are computed transposed:
// columns are queries. kept: dropout decisions as bits, for columns 2t and 2t+1 of every 8.
template <class T, int D, bool dropout>
__device__ void add_queries(KeyRows<D>& own, const Tile<T>& tile, int row,
                            const uint32_t (&kept)[2], float keep) {
  const float scale = 1 / sqrtf(static_cast<float>(D));
  const auto is_kept = [&](int j, int i) { return kept[i % 2] >> (16 * j + i / 2 * 8) & 1; };
  Sums<2> s, dp;
  multiply_transposed<T, D>(s, own.k, tile.memory, row * D + tile.lane_nk);
  const QueryStats* const stats = tile.stats + row + lane_column();
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s.at[j][i] = ex2_approx_ftz(s.at[j][i] * (scale * log2_e) - stats[8 * j + i % 2].lse);
  if constexpr (dropout) {
    Sums<2> p;
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) p.at[j][i] = is_kept(j, i) ? s.at[j][i] * keep : 0;
    add_product<T, D>(own.dv, p, tile.memory, tile.b + row * D + tile.lane);
  } else {
    add_product<T, D>(own.dv, s, tile.memory, tile.b + row * D + tile.lane);
  }
  if constexpr (v_in_shared<D>)
    multiply_transposed<T, D>(dp, SharedOperand<T>{tile.own_v, tile.lane}, tile.memory,
                              tile.b + row * D + tile.lane_nk);
  else
    multiply_transposed<T, D>(dp, own.v, tile.memory, tile.b + row * D + tile.lane_nk);
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (dropout) dp.at[j][i] *= is_kept(j, i) ? keep : 0;
      dp.at[j][i] = s.at[j][i] * (dp.at[j][i] - stats[8 * j + i % 2].delta);
    }
  add_product<T, D>(own.dk, dp, tile.memory, row * D + tile.lane);
}

template <class T, int D, bool dropout, bool few>
__device__ void key_phase(const AttentionBackward& op, const Tile<T>& tile, int b, int h,
                          int round) {
  const auto* const qkv = static_cast<const T*>(op.qkv);
  auto* const dqkv = static_cast<T*>(op.dqkv);
  const auto q = rows_of(qkv, op, 3, 0, b, h), k = rows_of(qkv, op, 3, 1, b, h),
             v = rows_of(qkv, op, 3, 2, b, h);
  const auto dout = rows_of(static_cast<const T*>(op.dout), op, 1, 0, b, h);
  const int N = op.shape.N, Q = op.shape.Q;
  const int64_t head = int64_t{blockIdx.x} * Q;  // its first row of lse and delta
  const float keep = keep_scale(op.drop);

  for (; round < N; round = next_round<few>(round, N)) {
    KeyRows<D> own;
    for (int first = 0; first < Q; first += tile.rows) {
      const bool load = round == 0 || few || tile.rows < Q;
      if (load) start_loading<T, D>(tile, q, dout, first, Q);
      if (first == 0) load_keys<T>(own, tile.own_v, k, v, own_row(round), N);
      if (load) load_stats<T, D, few>(tile, op, first, head);
      cp_async_wait<0>();
      __syncthreads();
      const int end = own_row(round) >= N ? 0 : min(Q - first, tile.rows);
#pragma unroll 1
      for (int row = 0; row < end; row += warp_rows) {
        uint32_t kept[2];
        if constexpr (dropout) {  // exchanged between lanes, since queries are columns here
          const uint32_t all = kept_tile(op, b, h, first + row, own_row(round));
          const int from = static_cast<int>(mov_tid_x() % 4 * 8), key = lane_row();
          kept[0] = __shfl_sync(~0u, all, from) >> key;
          kept[1] = __shfl_sync(~0u, all, from + 4) >> key;
        }
        add_queries<T, D, dropout>(own, tile, row, kept, keep);
      }
    }
    write_rows<T, D>(rows_of(dqkv, op, 3, 1, b, h), own_row(round), N, own.dk,
                     1 / sqrtf(static_cast<float>(D)));
    write_rows<T, D>(rows_of(dqkv, op, 3, 2, b, h), own_row(round), N, own.dv, 1);
  }
}

// dropout and few are template arguments, so that their code takes no registers if they are false.
template <class T, int D, bool dropout, bool few>
__global__ void __launch_bounds__(threads, few ? 2 : blocks<D, dropout>)
    attention_backward(AttentionBackward op, int tile_rows) {
  await_kernel_ahead();
  const auto tile = tile_of<T, D>(tile_rows);
  const int b = static_cast<int>(blockIdx.x) / op.shape.H,
            h = static_cast<int>(blockIdx.x) % op.shape.H;
  if constexpr (few) {
    const int rounds = static_cast<int>(gridDim.y) / 2, part = static_cast<int>(blockIdx.y);
    if (part < rounds)
      query_phase<T, D, dropout, few>(op, tile, b, h, part * block_rows);
    else
      key_phase<T, D, dropout, few>(op, tile, b, h, (part - rounds) * block_rows);
  } else {
    query_phase<T, D, dropout, few>(op, tile, b, h, 0);
    // key_phase() begins with a barrier, after which every delta is visible.
    key_phase<T, D, dropout, few>(op, tile, b, h, 0);
  }
}

// Whether there are too few heads for one block per head.
bool few_heads(const AttentionShape& s, const DeviceProps& props) {
  return int64_t{s.B} * s.H < int64_t{3} * props.sms;
}

// Rows per tile, for as few tiles as shared memory allows, of about equal sizes.
template <int D, bool dropout>
int tile_rows(int N, const DeviceProps& props) {
  constexpr int reserved = 1024;                   // per block, by the system
  const auto max_tiles = [&](int blocks_per_sm) {  // of warp_rows
    const int bytes = (props.shared_bytes + reserved) / blocks_per_sm - reserved - 2 * shared_v<D>;
    return bytes / (row_bytes<D> * warp_rows);
  };
  const int needed = ceil_div(N, warp_rows), fitting = max_tiles(blocks<D, dropout>);
  return ceil_div(needed, ceil_div(needed, fitting >= 4 ? fitting : max_tiles(1))) * warp_rows;
}

template <class T, int D, bool dropout>
void launch_backward(const AttentionBackward& op, const DeviceProps& props, cudaStream_t stream) {
  const int rows = tile_rows<D, dropout>(op.shape.N, props);
  const size_t bytes = size_t(rows) * row_bytes<D> + sizeof(T) * shared_v<D>;
  const int heads = op.shape.B * op.shape.H, rounds = ceil_div(op.shape.N, block_rows);
  if (few_heads(op.shape, props))
    launch<attention_backward<T, D, dropout, true>>(dim3(heads, 2 * rounds), threads, bytes, stream,
                                                    op, rows);
  else
    launch<attention_backward<T, D, dropout, false>>(heads, threads, bytes, stream, op, rows);
}

}  // namespace

template <>
size_t CudaKernels::workspace(const AttentionBackward& op) {
  check_attention(op, props_, "AttentionBackward");
  if (op.dtype == DType::fp32 || few_heads(op.shape, props_)) return 0;
  return size_t(op.shape.B) * op.shape.H * op.shape.Q * sizeof(float);  // delta
}

template <>
void CudaKernels::run(const AttentionBackward& op, cudaStream_t stream) {
  check_attention(op, props_, "AttentionBackward");
  if (op.dtype == DType::fp32) return attention_backward_fp32(op, stream);
  by_variant(op, [&]<class T, int D, bool dropout> {
    launch_backward<T, D, dropout>(op, props_, stream);
  });
}

template <>
void PlainKernels::run(const AttentionBackward& op, cudaStream_t stream) {
  check_head_dim_plain(op, "AttentionBackward");
  const size_t rows = size_t(op.shape.B) * op.shape.N * op.shape.H;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<attention_backward_queries_plain<T>>(rows, stream, op);
    launch_each<attention_backward_keys_plain<T>>(rows, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
