// attention forward: for each image and head, over the packed projections qkv [B, N, 3, H, D],
//   S = Q K^T / sqrt(D),  P = softmax(S) over keys,  out = (P * mask / (1 - drop)) V
//   lse = log sum over keys of exp(S)                                   all =, saved for backward
// S and P exist in registers only (flash-style, Dao et al. 2022): keys pass in steps of 32, P is
// exp2(S log2(e) / sqrt(D) - top), and out and the sum of P are relative to the same `top` until
// they are divided. `top` follows the largest score of its row only when that has run ahead of it
// by 2^8, which P in 16 bits and sums in fp32 have room for: mostly once. The last N % 32 keys pass
// in steps of 16, those that don't exist with a score of -inf.
//
// A block is 4 warps; a warp has a strip of 32 queries (16 where D = 128), whose Q, sums of out, S
// and P are fragments of mma m16n8k16: with two m-tiles each fragment of K and V, read by ldmatrix,
// serves two products. K and V of the whole head go to shared memory by cp.async if the chip has
// the room for as many blocks as registers allow, and the first step starts when their first 64
// rows are there; else two tiles of 64 keys take turns. Where heads abound, one block goes over all
// queries of a head; else the head's strips are spread over ceil(N / 128) blocks.
//
// At N = 197, D = 64, fp16, a head has 9.9 Mflop (20 % more are done: 7 strips are 224 queries,
// keys are 208) and 101 KB. Calculated clocks that a head takes of one SM:
//   mma       7 strips * 416 / 4 schedulers = 728 each: at 8 clocks (sm_80) 5800, at 4 to 6.4
//             (sm_90, whose full rate is wgmma's) 2900 to 4700
//   exp2      224 * 208 / 16 a clock            2900
//   ldmatrix  7 * 53 KB / 128 bytes a clock     2900
//   issue     7 * 2700 / 4                      4700   (SASS for sm_90a, counted)
//   memory    101 KB at 4.3 TB/s / 132          5400   where nothing is in the L2 cache
// None is far ahead of the others, and 12 warps of an SM overlap them: 168 registers *
// 128 threads * 3 = 64512 of 65536; shared memory 3 * 53248 bytes of 163 KB (sm_80) and of 227 KB
// (sm_90). At 60 % of the slowest it would be 9000 clocks, 250 Tflop/s on an H200 (1.755 GHz):
// calculated, not measured. Philox costs about 25 instructions an element, more than all the rest.
#include "kernels/attention/attention.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int warps = 4, threads = warps * warp_size;
constexpr int tile_keys = 64;  // that are copied together
// Of an SM, as registers allow; Philox takes some more of them, and Turing hasn't the
// shared memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int max_blocks = 2;
#else
constexpr int max_blocks = 4;
#endif
template <int D, bool dropout>
constexpr int blocks_per_sm = std::min(max_blocks, D == 128 ? 2 : (D == 32 ? 4 : 3) - int(dropout));

template <int D>
constexpr int m_tiles = D == 128 ? 1 : 2;  // of 16 queries, in a strip
template <int D>
constexpr int strip_queries = 16 * m_tiles<D>;

template <class T>
struct Shared {
  alignas(128) T rows[1];  // [2, capacity, D]: K, V; as many as the launch has asked for
};

// What a warp has of its strip; of a lane's two rows of m-tile m, [m][0] is row lane/4, [m][1] the
// eighth below it.
template <int D>
struct Strip {
  static constexpr int ms = m_tiles<D>;
  uint32_t q[ms][D / 16][4];  // factors A of mma
  float o[ms][D / 8][4];      // sums D of mma: of P V, not yet divided by `sum`
  float top[ms][2];           // what P is relative to, near the largest score so far; base 2
  float sum[ms][2];           // of P, this lane's columns
};

// 0 up to 2^8: P and its sums stay far from overflow when `top` lags behind the maximum by that.
constexpr float slack = 8;
constexpr float lowest = -0x1p127f;  // not -inf, whose differences are NaN

// Rows beyond the last are the last again; what comes of them isn't written.
template <class T, int D>
__device__ void load_queries(Strip<D>& strip, Rows<const T> q, int query, int N) {
  const int lane = mov_tid_x() % warp_size;
#pragma unroll
  for (int m = 0; m < strip.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* row = q[min(query + m * 16 + half * 8 + lane / 4, N - 1)];
#pragma unroll
      for (int part = 0; part < D / 32; ++part) {
        auto pack = load_pack(reinterpret_cast<const uint32_t*>(row + part * 32 + lane % 4 * 8));
        transpose_in_four(pack.at);
#pragma unroll
        for (int i = 0; i < 4; ++i) strip.q[m][part * 2 + i / 2][i % 2 * 2 + half] = pack.at[i];
      }
    }
}

// Moves `top` up to the largest score so far.
template <int D, int n_tiles>
__device__ void raise(Strip<D>& strip, const float (&s)[Strip<D>::ms][n_tiles][4], float scale) {
#pragma unroll
  for (int m = 0; m < strip.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = s[m][0][2 * half];
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
        most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
      const float top = fmaxf(strip.top[m][half], warp_max<4>(most) * scale);
      const float factor = ex2_approx_ftz(strip.top[m][half] - top);
      strip.top[m][half] = top;
      strip.sum[m][half] *= factor;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        strip.o[m][d][2 * half] *= factor;
        strip.o[m][d][2 * half + 1] *= factor;
      }
    }
}

// Takes in `keys` keys, of which `left` exist. k, v: this lane's places for ldmatrix in the first
// 16 rows of K and V, in bytes from `rows`. keep: bits of dropout's decisions.
template <class T, int D, int keys, bool masked, bool dropout>
__device__ void attend(Strip<D>& strip, const char* rows, int k, int v, int left, float scale,
                       const uint32_t (&keep)[2 * Strip<D>::ms]) {
  constexpr int ms = Strip<D>::ms, n_tiles = keys / 8, row_bytes = D * sizeof(T);
  const int column = threadIdx.x % 4 * 2;

  float s[ms][n_tiles][4]{};
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
#pragma unroll
    for (int n = 0; n < n_tiles; n += 2) {
      uint32_t b[4];
      ldmatrix_x4(b, rows + ((k ^ 32 * d) + n * 8 * row_bytes));
#pragma unroll
      for (int m = 0; m < ms; ++m) {
        mma_m16n8k16<T>(s[m][n], strip.q[m][d], b[0], b[1]);
        mma_m16n8k16<T>(s[m][n + 1], strip.q[m][d], b[2], b[3]);
      }
    }

  bool too_low = false;
#pragma unroll
  for (int m = 0; m < ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < n_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[m][n][2 * half + i];
          if (masked && n * 8 + column + i >= left) score = -INFINITY;
          most = fmaxf(most, score);
        }
      too_low |= fmaf(most, scale, -strip.top[m][half]) > slack;
    }
  if (__any_sync(~0u, too_low)) raise<D, n_tiles>(strip, s, scale);

#pragma unroll
  for (int j = 0; j < keys / 16; ++j) {
    uint32_t p[ms][4];
#pragma unroll
    for (int m = 0; m < ms; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * j + i / 2, half = i % 2;
        float pair[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          pair[e] = ex2_approx_ftz(fmaf(s[m][n][2 * half + e], scale, -strip.top[m][half]));
          strip.sum[m][half] += pair[e];
          if (dropout && !(keep[2 * m + half] >> column & 1u << (n * 8 + e))) pair[e] = 0;
        }
        p[m][i] = cvt_rn_x2<T>(pair[0], pair[1]);
      }
#pragma unroll
    for (int d = 0; d < D / 8; d += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, rows + ((v ^ 16 * d) + j * 16 * row_bytes));
#pragma unroll
      for (int m = 0; m < ms; ++m) {
        mma_m16n8k16<T>(strip.o[m][d], p[m], b[0], b[1]);
        mma_m16n8k16<T>(strip.o[m][d + 1], p[m], b[2], b[3]);
      }
    }
  }
}

template <class T, int D>
__device__ void write_strip(Strip<D>& strip, Rows<T> out, float* lse, int query, int N,
                            float keep_factor) {
  const int lane = mov_tid_x() % warp_size;
  int left = N - query - lane / 4;  // rows from here on
  lse += query + lane / 4;
  T* row = out[query + lane / 4] + lane % 4 * 8;
#pragma unroll
  for (int m = 0; m < strip.ms; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = warp_sum<4>(strip.sum[m][half]);
      const float factor = keep_factor * rcp_approx_ftz(sum);
      if (lane % 4 == 0 && left > 0)
        *lse = (strip.top[m][half] + lg2_approx_ftz(sum)) * 0.693147181f;
#pragma unroll
      for (int part = 0; part < D / 32; ++part) {
        Pack<uint32_t> pack;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&o)[4] = strip.o[m][part * 4 + i];
          pack.at[i] = cvt_rn_x2<T>(o[2 * half] * factor, o[2 * half + 1] * factor);
        }
        transpose_in_four(pack.at);
        if (left > 0) store_pack(reinterpret_cast<uint32_t*>(row + part * 32), pack);
      }
      left -= 8, lse += 8, row += 8 * out.stride;
    }
}

// Until at most `pending` of this thread's groups of copies are under way.
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

// Block (part, h, b): a head's parts share its queries. capacity: keys that shared memory holds.
template <class T, int D, bool dropout>
__global__ void __launch_bounds__(threads, (blocks_per_sm<D, dropout>))
    attention_forward(AttentionForward op, int capacity) {
  const int b = blockIdx.z, h = blockIdx.y, head = b * op.shape.H + h, N = op.shape.N,
            parts = gridDim.x;
  // Neighbours among heads take turns at which part and which warp has least to do.
  const int turn = head + head / 4;
  const int part = turn % 2 ? parts - 1 - blockIdx.x : blockIdx.x;
  const int lane = threadIdx.x % warp_size;

  T* const k = shared<Shared<T>>().rows;
  T* const v = k + capacity * D;
  const auto place_of = [=](int key) { return key < capacity ? key : key % (2 * tile_keys); };
  const auto copy_tile = [&](int key) {
    const int rows = min(tile_keys, ceil_div(N - key, 16) * 16), at = place_of(key) * D;
    const auto* qkv = static_cast<const T*>(op.qkv);
    copy_rows_async<D, threads>(k + at, rows_of(qkv, op, 3, 1, b, h), key, rows, N);
    copy_rows_async<D, threads>(v + at, rows_of(qkv, op, 3, 2, b, h), key, rows, N);
    cp_async_commit();
  };
  int copied = 0;  // keys whose copies have begun
  for (; copied < min(N, capacity); copied += tile_keys) copy_tile(copied);

  const float scale = 1.44269504f / sqrtf(D);
  const auto* rows = reinterpret_cast<const char*>(k);
  constexpr int row_bytes = D * sizeof(T);
  // Of K, the two matrices that one mma takes come in neighbouring registers, as those of V do.
  const int lane_bytes = swizzled<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2) * int(sizeof(T));
  const int v_bytes =
      capacity * row_bytes + swizzled<D>(lane % 16, lane / 16) * int(sizeof(T)) - lane_bytes;
  constexpr int round = warps * strip_queries<D>;
  for (int first = part * round; first < N; first += parts * round) {
    const int query = first + (mov_tid_x() / warp_size + turn) % warps * strip_queries<D>;
    Strip<D> strip{};
#pragma unroll
    for (int m = 0; m < strip.ms; ++m) strip.top[m][0] = strip.top[m][1] = lowest;
    if (query < N)
      load_queries<T>(strip, rows_of(static_cast<const T*>(op.qkv), op, 3, 0, b, h), query, N);

    int tile = 0;
    do {
      if (first == part * round) {
        wait_for_copies((copied - tile) / tile_keys - 1);
        __syncthreads();
      }
      if (query < N) {
        int key = tile, at = place_of(tile) * row_bytes + lane_bytes;
        const int end = min(tile + tile_keys, N);
        const auto first_decision = [&] { return (uint64_t(h) * N + query + lane / 4) * N + key; };
        uint32_t keep[2 * Strip<D>::ms]{};
        for (; key + 32 <= end; key += 32, at += 32 * row_bytes) {
          if constexpr (dropout)
            keep_bits<2 * Strip<D>::ms, 32>(keep, KeepDecisions(op, b), first_decision(), 8u * N);
          attend<T, D, 32, false, dropout>(strip, rows, at, at + v_bytes, 32, scale, keep);
        }
        for (; key < end; key += 16, at += 16 * row_bytes) {
          if constexpr (dropout)
            keep_bits<2 * Strip<D>::ms, 16>(keep, KeepDecisions(op, b), first_decision(), 8u * N);
          attend<T, D, 16, true, dropout>(strip, rows, at, at + v_bytes, end - key, scale, keep);
        }
      }
      if (copied < N) {  // into the place of this tile
        __syncthreads();
        copy_tile(copied);
        copied += tile_keys;
      }
    } while ((tile += tile_keys) < N);
    if (query < N)
      write_strip<T>(strip, rows_of(static_cast<T*>(op.out), op, 1, 0, b, h),
                     op.lse + int64_t{head} * N, query, N, dropout ? keep_scale(op.drop) : 1);
  }
}

template <class T, int D, bool dropout>
void launch_forward(const AttentionForward& op, const DeviceProps& props, cudaStream_t stream) {
  // All keys at once where the blocks of an SM have the room, else two tiles.
  const size_t key_bytes = 2 * D * sizeof(T);
  constexpr int blocks = blocks_per_sm<D, dropout>;
  const int room = static_cast<int>(((props.shared_bytes + 1024) / blocks - 1024) / key_bytes);
  const int all = ceil_div(op.shape.N, 16) * 16;
  const int capacity = all <= std::max(room, 2 * tile_keys) ? all : 2 * tile_keys;
  // A block goes over all queries where heads abound, else (and where keys pass by) over one strip
  // a warp.
  const int max_parts = ceil_div(op.shape.N, warps * strip_queries<D>);
  const bool abound = int64_t{op.shape.B} * op.shape.H >= 4 * props.sms;
  const dim3 grid(capacity == all && abound ? 1 : max_parts, op.shape.H, op.shape.B);
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
  const char* name = "AttentionForward";
  check_attention(op, props_, name);
  if (op.dtype == DType::fp32) return attention_forward_fp32(op, props_, stream);
  by_dtype(op.dtype, [&]<class T> {
    if constexpr (!std::is_same_v<T, float>)
      by_head_dim(op.shape.D, [&]<int D> {
        if (op.drop > 0)
          launch_forward<T, D, true>(op, props_, stream);
        else
          launch_forward<T, D, false>(op, props_, stream);
      });
  });
}

}  // namespace bv::BAREVISION_GPU
