// attention backward: for each image and head, with dP' = dout V^T * mask / (1 - drop) and
// delta = rowsum(dout * out):
//   P = exp(Q K^T / sqrt(D) - lse),  dS = P * (dP' - delta)
//   dQ = dS K / sqrt(D),  dK = dS^T Q / sqrt(D),  dV = (P * mask / (1 - drop))^T dout     all =
// over packed qkv [B, N, 3, H, D]. Saved by forward: out and lse. fp32: attention_fp32.cu; this is
// fp16 and bf16 by mma.sync, where P and dS are rounded to 16 bits as factors and sums are fp32.
//
// A block of four warps has a head. A warp takes a strip of 16 rows at a time, in two phases:
//   queries: its Q, dout in registers, K, V pass by in shared memory; delta (to workspace) and dQ
//   keys:    its K, V in registers, Q, dout pass by; dK and dV
// The accumulators of a product lie as the next one's left factor does, so P and dS never leave
// registers, no warp waits for another but where a tile is loaded, and nothing is added up but in a
// warp's own registers: one fixed order, no atomics. The price is S and dP' twice: 7 products, not
// 5. Five would take dS through shared memory to the warps that add up dQ, with two barriers a
// tile, and for keys beyond one tile dQ in memory.
// A tile is as many rows as shared memory has room for; a head that fits is loaded once a phase.
//
// N = 197, D = 64: 13 x 13 tiles of 16 x 16, each 56 mma and 28 ldmatrix_x4, 38.8 MFLOP for 24.8
// useful ones. What an SM of an H200 needs for them, in clocks: mma.sync 1.6 each, 15 k;
// shared memory 4 an ldmatrix, 19 k; 2 N^2 exponentials at 16 a clock, 5 k; issue slots 11 k.
// So shared memory is the limit: 11 us a head, on 132 SMs 300 useful TFLOP/s. Forward
// and backward reach 150 together if backward gets 55% of that (4 N^2 D flops forward in 80 ns a
// head, 10 N^2 D backward in 150). Memory: 8 N D elements, 202 KB, 47 ns at 4.3 TB/s. On sm_80 an
// mma takes 2 clocks, so 19 k for either; at 1.4 GHz and 108 SMs 200 TFLOP/s.
// Occupancy: at most 168 registers a thread (64 sums, 32 of own rows, 16 of P and dS), so three
// blocks of four warps, 3 warps a scheduler; two tiles of 208 rows take 54.9 KB, three times that
// and what the system reserves just fit into sm_80's 164 KB, easily into sm_90's 228. While one
// block loads, two compute. D = 32: four blocks of 128 registers. D = 128: two of 255, with V's own
// rows in shared memory. With dropout, where Philox takes most of the time, two also for D = 64.
#include "kernels/attention/attention.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int strip = 16;  // rows of a warp: an mma's M
constexpr int threads = 128, block_rows = threads / warp_size * strip;

// Of an SM, by registers (128, 168 and 255 a thread) and schedulers.
template <int D, bool dropout>
constexpr int blocks = D == 128 || (D == 64 && dropout) ? 2
                       : D == 64                        ? 3
                                                        : 4;
// Where registers don't hold both factors and sums, V's own rows are read from shared memory.
template <int D>
constexpr bool v_in_shared = D == 128;
template <int D>
constexpr int shared_v = v_in_shared<D> ? D* block_rows : 0;  // elements

constexpr float log2_e = 1.44269504088896340736f;

__device__ int lane_column() { return static_cast<int>(threadIdx.x % 4 * 2); }
// The same, not held in a register meanwhile.
__device__ int row_anew() { return static_cast<int>(mov_tid_x() % warp_size / 4); }

// ------------------------------------------------------------------------------------------------
// tiles in shared memory

struct RowSums {
  float lse, delta;  // lse in powers of 2
};
template <class T>
struct Tile {
  T* memory;      // a [rows][D], b [rows][D], swizzled: K and V, or Q and dout
  int b;          // where b begins
  RowSums* sums;  // [rows]  of Q and dout
  T* own;         // [16][D], swizzled: this warp's rows of V
  int rows;
};
template <int D>
constexpr int row_bytes = 2 * D * 2 + sizeof(RowSums);

template <class T, int D>
__device__ Tile<T> tile_of(int rows) {
  T* const memory = shared<Pack<T>>().at;
  auto* const sums = reinterpret_cast<RowSums*>(memory + 2 * rows * D);
  auto* const own = reinterpret_cast<T*>(sums + rows);
  return {memory, rows * D, sums, own + threadIdx.x / warp_size * (strip * D), rows};
}

// Rows `first` on of two arrays of a head, zeros behind row N up to a whole strip.
template <class T, int D>
__device__ void start_loading(const Tile<T>& tile, Rows<const T> a, Rows<const T> b, int first,
                              int N) {
  const int left = (N - first + strip - 1) / strip * strip,
            rows = left < tile.rows ? left : tile.rows;
  __syncthreads();  // nobody reads what was there
  copy_rows_async<D, threads>(tile.memory, a, first, rows, N);
  copy_rows_async<D, threads>(tile.memory + tile.b, b, first, rows, N);
  cp_async_commit();
}

// ------------------------------------------------------------------------------------------------
// products of a warp

// 16 rows as left factors of mmas.
template <int D>
struct Factor {
  static constexpr int unroll = D / 16;
  uint32_t at[D / 16][4];

  __device__ void get(int s, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = at[s][i];
  }
};
// The same in shared memory.
template <class T>
struct SharedFactor {
  static constexpr int unroll = 2;
  const T* rows;
  int lane;

  __device__ void get(int s, uint32_t (&a)[4]) const { ldmatrix_x4(a, rows + (lane ^ 16 * s)); }
};

// 16 x 8n sums.
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

// This lane's share of a row: of every 64 bytes the 16 that lane % 4 says. Zeros from row N on.
template <class T, int D>
struct Half {
  Pack<T> at[D / 32];

  __device__ Half(Rows<const T> rows, int row, int N) {
    const T* const from = rows[row] + mov_tid_x() % 4 * 8;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) at[c] = row < N ? load_pack(from + 32 * c) : Pack<T>{};
  }
};

template <class T, int D>
__device__ float dot(const Half<T, D>& a, const Half<T, D>& b) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < D / 32; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(a.at[c].at[i]) * to_float(b.at[c].at[i]);
  return warp_sum<4>(sum);
}

template <class T, int D>
__device__ void set_half(Factor<D>& factor, int half, const Half<T, D>& rows) {
#pragma unroll
  for (int c = 0; c < D / 32; ++c) {
    uint32_t x[4];
    memcpy(x, &rows.at[c], 16);
    transpose_in_four(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) factor.at[2 * c + i / 2][half + i % 2 * 2] = x[i];
  }
}

// For SharedFactor; another barrier has to follow.
template <class T, int D>
__device__ void store_half(T* own, int half, const Half<T, D>& rows) {
  __syncwarp();
#pragma unroll
  for (int c = 0; c < D / 32; ++c)
    store_pack(own + swizzled<D>(row_anew() + 8 * half, static_cast<int>(4 * c + mov_tid_x() % 4)),
               rows.at[c]);
}

// Where this lane's row of an ldmatrix_x4 begins in 16 rows: matrices 0 and 1 are columns 0 to 7
// of rows 0 to 7 and of those below, 2 and 3 columns 8 to 15. Columns from 16 s on: offset ^ 16 s.
template <int D>
__device__ int lane_offset() {
  return swizzled<D>(static_cast<int>(threadIdx.x % 16), static_cast<int>(threadIdx.x / 16 % 2));
}
// The same with matrices 1 and 2 exchanged, so that the two which one mma takes of transposed rows
// come in neighbouring registers.
template <int D>
__device__ int transposed_lane_offset() {
  return swizzled<D>(static_cast<int>(threadIdx.x / 16 % 2 * 8 + threadIdx.x % 8),
                     static_cast<int>(threadIdx.x / 8 % 2));
}

// sums = a * (16 rows)^T
template <class T, int D, class Factor>
__device__ void multiply_transposed(Sums<2>& sums, const Factor& factor, const T* memory, int rows,
                                    int lane) {
  sums.clear();
#pragma unroll Factor::unroll
  for (int s = 0; s < D / 16; ++s) {
    uint32_t a[4], b[4];
    factor.get(s, a);
    ldmatrix_x4(b, memory + ((rows + lane) ^ 16 * s));
    mma_m16n8k16<T>(sums.at[0], a, b[0], b[1]);
    mma_m16n8k16<T>(sums.at[1], a, b[2], b[3]);
  }
}

// sums += a [16, 16] * (16 rows)
template <class T, int D>
__device__ void add_product(Sums<D / 8>& sums, const Sums<2>& a, const T* memory, int rows,
                            int lane) {
  const uint32_t factor[4] = {
      cvt_rn_x2<T>(a.at[0][0], a.at[0][1]), cvt_rn_x2<T>(a.at[0][2], a.at[0][3]),
      cvt_rn_x2<T>(a.at[1][0], a.at[1][1]), cvt_rn_x2<T>(a.at[1][2], a.at[1][3])};
#pragma unroll
  for (int s = 0; s < D / 16; ++s) {
    uint32_t b[4];
    ldmatrix_x4_trans(b, memory + ((rows + lane) ^ 16 * s));
    mma_m16n8k16<T>(sums.at[2 * s], factor, b[0], b[1]);
    mma_m16n8k16<T>(sums.at[2 * s + 1], factor, b[2], b[3]);
  }
}

// Dropout's decisions for 16 x 16 elements from (query, key) on, of a head whose first one has the
// number `head`: bit k of the result's lower (upper) half is for key k of query lane / 4 (8 below).
// A row takes five calls of Philox; a lane makes three, one after another, since side by side they
// take too many registers.
__device__ inline uint32_t kept_tile(const KeepDecisions& keep, uint64_t head, int query, int key,
                                     int N) {
  const int lane = static_cast<int>(mov_tid_x() % 4);
  const uint64_t begin = head + uint64_t(query + row_anew()) * N + key, begin_below = begin + 8 * N;
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

// Rows `first` on of `to` = sums * scale, up to row N.
template <class T, int D>
__device__ void write_strip(Rows<T> to, int first, int N, const Sums<D / 8>& sums, float scale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + row_anew() + 8 * half;
    T* const at = to[row] + mov_tid_x() % 4 * 8;
#pragma unroll
    for (int c = 0; c < D / 32; ++c) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = cvt_rn_x2<T>(sums.at[4 * c + i][2 * half] * scale,
                            sums.at[4 * c + i][2 * half + 1] * scale);
      transpose_in_four(x);
      if (row < N) st_global(reinterpret_cast<uint4*>(at + 32 * c), {x[0], x[1], x[2], x[3]});
    }
  }
}

// ------------------------------------------------------------------------------------------------
// phases

// The blocks differ in which of their warps take the strips of the last, incomplete round, so that
// these don't fall to the same scheduler.
__device__ int first_strip() {
  return static_cast<int>((mov_tid_x() / warp_size + blockIdx.x) % (threads / warp_size)) * strip;
}

template <class T, int D, bool dropout>
__device__ void query_phase(const AttentionBackward& op, const Tile<T>& tile, int b, int h) {
  const auto* const qkv = static_cast<const T*>(op.qkv);
  const auto q = rows_of(qkv, op, 3, 0, b, h), k = rows_of(qkv, op, 3, 1, b, h),
             v = rows_of(qkv, op, 3, 2, b, h);
  const auto dout = rows_of(static_cast<const T*>(op.dout), op, 1, 0, b, h),
             out = rows_of(static_cast<const T*>(op.out), op, 1, 0, b, h);
  const int N = op.shape.N;
  const int64_t head = int64_t{blockIdx.x} * N;
  const float scale = 1 / sqrtf(static_cast<float>(D));
  const int lane = lane_offset<D>(), transposed_lane = transposed_lane_offset<D>();
  const float keep = keep_scale(op.drop);
  const uint64_t decisions = uint64_t(h) * N * N;

  for (int strips = 0; strips < N; strips += block_rows) {
    const auto own = [&] { return strips + first_strip(); };
    Factor<D> own_q, own_dout;
    float lse[2], delta[2];
    Sums<D / 8> dq;
    for (int first = 0; first < N; first += tile.rows) {
      if (strips == 0 || tile.rows < N) start_loading<T, D>(tile, k, v, first, N);
      if (first == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = own() + row_anew() + 8 * half;
          const Half<T, D> q_half(q, row, N), dout_half(dout, row, N), out_half(out, row, N);
          delta[half] = dot(dout_half, out_half);
          set_half(own_q, half, q_half);
          set_half(own_dout, half, dout_half);
          lse[half] = row < N ? op.lse[head + row] * log2_e : INFINITY;
          if (row < N && threadIdx.x % 4 == 0)
            static_cast<float*>(op.workspace)[head + row] = delta[half];
        }
        dq.clear();
      }
      cp_async_wait<0>();
      __syncthreads();
      const int end = own() >= N ? 0 : N - first < tile.rows ? N - first : tile.rows;
#pragma unroll 1
      for (int row = 0; row < end; row += strip) {
        uint32_t kept = 0;
        if constexpr (dropout)
          kept = kept_tile(KeepDecisions(op, b), decisions, own(), first + row, N) >> lane_column();
        Sums<2> s, dp;
        multiply_transposed<T, D>(s, own_q, tile.memory, row * D, transposed_lane);
        multiply_transposed<T, D>(dp, own_dout, tile.memory, tile.b + row * D, transposed_lane);
        const bool whole = row + strip <= end;
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = 8 * j + i % 2;  // + lane_column()
            float p = ex2_approx_ftz(s.at[j][i] * (scale * log2_e) - lse[i / 2]);
            if (!whole && row + key + lane_column() >= end) p = 0;
            if constexpr (dropout) dp.at[j][i] *= kept >> (i / 2 * 16 + key) & 1 ? keep : 0;
            s.at[j][i] = p * (dp.at[j][i] - delta[i / 2]);
          }
        add_product<T, D>(dq, s, tile.memory, row * D, lane);
      }
    }
    write_strip<T, D>(rows_of(static_cast<T*>(op.dqkv), op, 3, 0, b, h), own(), N, dq, scale);
  }
}

template <class T, int D, bool dropout>
__device__ void key_phase(const AttentionBackward& op, const Tile<T>& tile, int b, int h) {
  const auto* const qkv = static_cast<const T*>(op.qkv);
  auto* const dqkv = static_cast<T*>(op.dqkv);
  const auto q = rows_of(qkv, op, 3, 0, b, h), k = rows_of(qkv, op, 3, 1, b, h),
             v = rows_of(qkv, op, 3, 2, b, h);
  const auto dout = rows_of(static_cast<const T*>(op.dout), op, 1, 0, b, h);
  const int N = op.shape.N;
  const int64_t head = int64_t{blockIdx.x} * N;
  const float scale = 1 / sqrtf(static_cast<float>(D));
  const int lane = lane_offset<D>(), transposed_lane = transposed_lane_offset<D>();
  const float keep = keep_scale(op.drop);
  const uint64_t decisions = uint64_t(h) * N * N;

  for (int strips = 0; strips < N; strips += block_rows) {
    const auto own = [&] { return strips + first_strip(); };
    Factor<D> own_k, own_v;
    Sums<D / 8> dk, dv;
    for (int first = 0; first < N; first += tile.rows) {
      const bool load = strips == 0 || tile.rows < N;
      if (load) start_loading<T, D>(tile, q, dout, first, N);
      if (first == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = own() + row_anew() + 8 * half;
          const Half<T, D> k_half(k, row, N), v_half(v, row, N);
          set_half(own_k, half, k_half);
          if constexpr (v_in_shared<D>)
            store_half(tile.own, half, v_half);
          else
            set_half(own_v, half, v_half);
        }
        dk.clear(), dv.clear();
      }
      if (load)
#pragma unroll 1  // as loads in flight take registers
        for (int i = static_cast<int>(mov_tid_x()); i < tile.rows; i += threads) {
          const int64_t row = head + first + i;
          tile.sums[i] = first + i < N ? RowSums{op.lse[row] * log2_e,
                                                 static_cast<const float*>(op.workspace)[row]}
                                       : RowSums{INFINITY, 0};  // P is 0
        }
      cp_async_wait<0>();
      __syncthreads();
      const int end = own() >= N ? 0 : N - first < tile.rows ? N - first : tile.rows;
#pragma unroll 1
      for (int row = 0; row < end; row += strip) {
        uint32_t kept[2];
        if constexpr (dropout) {
          // Each lane gets those of its columns, which are queries here.
          const uint32_t all = kept_tile(KeepDecisions(op, b), decisions, first + row, own(), N);
          const int from = static_cast<int>(mov_tid_x() % 4 * 8), key = row_anew();
          kept[0] = __shfl_sync(~0u, all, from) >> key;
          kept[1] = __shfl_sync(~0u, all, from + 4) >> key;
        }
        Sums<2> s, dp;
        multiply_transposed<T, D>(s, own_k, tile.memory, row * D, transposed_lane);
        const RowSums* const of = tile.sums + row + lane_column();
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            s.at[j][i] = ex2_approx_ftz(s.at[j][i] * (scale * log2_e) - of[8 * j + i % 2].lse);
        if constexpr (dropout) {
          Sums<2> p;
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              p.at[j][i] = kept[i % 2] >> (16 * j + i / 2 * 8) & 1 ? s.at[j][i] * keep : 0;
          add_product<T, D>(dv, p, tile.memory, tile.b + row * D, lane);
        } else {
          add_product<T, D>(dv, s, tile.memory, tile.b + row * D, lane);
        }
        if constexpr (v_in_shared<D>)
          multiply_transposed<T, D>(dp, SharedFactor<T>{tile.own, lane}, tile.memory,
                                    tile.b + row * D, transposed_lane);
        else
          multiply_transposed<T, D>(dp, own_v, tile.memory, tile.b + row * D, transposed_lane);
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if constexpr (dropout)
              dp.at[j][i] *= kept[i % 2] >> (16 * j + i / 2 * 8) & 1 ? keep : 0;
            dp.at[j][i] = s.at[j][i] * (dp.at[j][i] - of[8 * j + i % 2].delta);
          }
        add_product<T, D>(dk, dp, tile.memory, row * D, lane);
      }
    }
    write_strip<T, D>(rows_of(dqkv, op, 3, 1, b, h), own(), N, dk, scale);
    write_strip<T, D>(rows_of(dqkv, op, 3, 2, b, h), own(), N, dv, 1);
  }
}

// A block per head. dropout: without it, no registers for random numbers.
template <class T, int D, bool dropout>
__global__ void __launch_bounds__(threads, blocks<D, dropout>)
    attention_backward(AttentionBackward op, int tile_rows) {
  const auto tile = tile_of<T, D>(tile_rows);
  const int b = static_cast<int>(blockIdx.x) / op.shape.H,
            h = static_cast<int>(blockIdx.x) % op.shape.H;
  query_phase<T, D, dropout>(op, tile, b, h);
  key_phase<T, D, dropout>(op, tile, b, h);  // begins with a barrier: every delta is there
}

// Tiles as large as shared memory allows, all about equal.
template <int D, bool dropout>
int tile_rows(int N, const DeviceProps& props) {
  constexpr int reserved = 1024;  // of each block, by the system
  const auto most = [&](int of) {
    const int bytes = (props.shared_bytes + reserved) / of - reserved - 2 * shared_v<D>;
    return bytes / (row_bytes<D> * strip);
  };
  const int strips = ceil_div(N, strip), all = most(blocks<D, dropout>);
  return ceil_div(strips, ceil_div(strips, all >= 4 ? all : most(1))) * strip;
}

template <class T, int D, bool dropout>
void start(const AttentionBackward& op, const DeviceProps& props, cudaStream_t stream) {
  const int rows = tile_rows<D, dropout>(op.shape.N, props);
  launch<attention_backward<T, D, dropout>>(op.shape.B * op.shape.H, threads,
                                            size_t(rows) * row_bytes<D> + sizeof(T) * shared_v<D>,
                                            stream, op, rows);
}

}  // namespace

template <>
size_t CudaKernels::workspace(const AttentionBackward& op) {
  check_attention(op, props_, "AttentionBackward");
  if (op.dtype == DType::fp32) return attention_backward_fp32_workspace_bytes(op);
  return size_t(op.shape.B) * op.shape.H * op.shape.N * sizeof(float);  // delta
}

template <>
void CudaKernels::run(const AttentionBackward& op, cudaStream_t stream) {
  constexpr const char* name = "AttentionBackward";
  check_attention(op, props_, name);
  const cudaStream_t s = stream;
  if (op.dtype == DType::fp32) return attention_backward_fp32(op, props_, s);
  by_head_dim(op.shape.D, [&]<int D> {
    const auto with = [&]<class T> {
      if (op.drop > 0)
        start<T, D, true>(op, props_, s);
      else
        start<T, D, false>(op, props_, s);
    };
    if (op.dtype == DType::fp16)
      with.template operator()<__half>();
    else
      with.template operator()<__nv_bfloat16>();
  });
}

}  // namespace bv::BAREVISION_GPU
