// attention forward (attention.cu) on Hopper, in 16 bits:
//   S = Q K^T / sqrt(D),  P = softmax(S) over keys,  out = (P * mask / (1 - drop)) V,  lse
// with wgmma. S, P and the sums of out stay in registers; the online softmax is attention.cu's.
//
//   items      128 queries of a head. There is one block per SM, which computes every gridDim.x-th
//              item, so that a head's items run concurrently and share its keys in L2.
//   warpgroups two consumers with 64 queries each; while one computes exponentials, the other
//              multiplies. One thread of a third warpgroup, the producer, issues TMA copies of the
//              next item's Q and, alternately, of tiles of K and V into a ring of stages.
//   tile       `keys` keys: the size that needs the least padding, so that 197, 577 and 1025 tokens
//              take 1, 3 and 5 tiles of 208. Keys past N are zeros, with scores -inf.
//   memory     rows of 128 bytes (64 if D = 32), which TMA swizzles as wgmma reads them. out is
//              staged in the place of its queries and stored by TMA, which drops rows past Q.
//
// Limited by memory bandwidth at 197 tokens of 64 channels: a head moves 101 KB, 7,000 clocks at an
// SM's share of an H100's bandwidth. Its four tiles of 64 queries take 3,300 clocks on tensor cores
// (832 each), the same for exponentials (16 per clock), and 4,000 in the schedulers (1,000
// instructions per warp and tile, half of them on scores). With thousands of tokens, products and
// exponentials are equal limits, 1,664 clocks each for 128 queries and 208 keys; the schedulers
// need 1,040. With dropout, Philox is the limit.
#include "kernels/attention/attention_sm90.cuh"

namespace bv::BAREVISION_GPU {
namespace {
using sm90::consumers, sm90::warpgroup, sm90::wgmma_k;

constexpr int query_rows = 64;                        // of a consumer
constexpr int item_queries = consumers * query_rows;  // of a block
constexpr int q_stages = 2;
constexpr int consumer_warps = consumers * warpgroup / warp_size;

// ---- Rows of a head in shared memory ------------------------------------------------------------
// A tile of `rows` rows; with 128 channels, two tiles of 64 channels, one after the other.
template <int D>
struct HeadRows {
  static constexpr int columns = std::min(D, 64), row_bytes = columns * 2, blocks = D / columns;
  static constexpr Swizzle swizzle = D == 32 ? Swizzle::b64 : Swizzle::b128;
  static constexpr int parts = D / wgmma_k;  // wgmmas of a product over channels

  // Operand of a product over channels: the part-th 16 of them.
  __device__ static uint64_t over_channels(const char* tile, int rows, int part) {
    constexpr int block_parts = columns / wgmma_k;
    return wgmma_descriptor(
        tile + part / block_parts * rows * row_bytes + part % block_parts * wgmma_k * 2, swizzle,
        8 * row_bytes);
  }
  // Operand of a product over rows: the part-th 16 of them.
  __device__ static uint64_t over_rows(const char* tile, int rows, int part) {
    return wgmma_descriptor(tile + part * wgmma_k * row_bytes, swizzle, 8 * row_bytes,
                            rows * row_bytes);
  }
  // Byte offset of a row's chunk-th 16 bytes.
  __device__ static int offset(int rows, int row, int chunk) {
    constexpr int chunks = row_bytes / 16;
    const int swizzled = chunk % chunks ^ (chunks == 8 ? row % 8 : row / 2 % 4);
    return (chunk / chunks * rows + row) * row_bytes + swizzled * 16;
  }
};

struct Arguments {
  // Tensor maps; a box is this many tokens of a head:
  CUtensorMap q;    // 64 of the first Q of qkv [B, N, 3H, D]
  CUtensorMap kv;   // `keys` of qkv
  CUtensorMap out;  // 64 of [B, Q, H, D]
  AttentionForward op;

  __host__ __device__ int head_items() const { return ceil_div(op.shape.Q, item_queries); }
  __host__ __device__ int64_t items() const {
    return int64_t{op.shape.B} * op.shape.H * head_items();
  }
};
struct Item {
  int b, h, head;
  int query;  // the first

  __device__ Item(const Arguments& arguments, int i)
      : head(i / arguments.head_items()), query(i % arguments.head_items() * item_queries) {
    b = head / arguments.op.shape.H, h = head % arguments.op.shape.H;
  }
};

// ---- The kernel -----------------------------------------------------------------------------
template <class T, int D, int keys, bool dropout>
struct Attention {
  using Rows = HeadRows<D>;
  static constexpr int tile_bytes = keys * D * 2, q_bytes = query_rows * D * 2;
  static constexpr int stages =
      std::min(8, (sm90::shared_bytes - 256 - q_stages * consumers * q_bytes) / tile_bytes);

  struct Shared {
    alignas(1024) char q[q_stages][consumers][q_bytes];
    alignas(1024) char kv[stages][tile_bytes];
    // mbarriers: `full` completes a phase when the bytes have arrived, `empty` once consumers are
    // done.
    uint64_t q_full[q_stages], q_empty[q_stages], full[stages], empty[stages];
  };
  static_assert(sizeof(Shared) <= sm90::shared_bytes);

  __device__ static void run(const Arguments& arguments) {
    auto& s = shared<Shared>();
    if (threadIdx.x == 0) {
      for (int i = 0; i < q_stages; ++i)
        mbarrier_init(&s.q_full[i], 1), mbarrier_init(&s.q_empty[i], consumer_warps);
      for (int i = 0; i < stages; ++i)
        mbarrier_init(&s.full[i], 1), mbarrier_init(&s.empty[i], consumer_warps);
      fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < warpgroup) {
      setmaxnreg_dec<sm90::producer_registers>();
      await_kernel_ahead();
      if (threadIdx.x == 0) produce(arguments, s);
    } else {
      setmaxnreg_inc<sm90::consumer_registers>();
      await_kernel_ahead();
      consume(arguments, s);
    }
  }

 private:
  // ---- Copies -------------------------------------------------------------------------------
  // Copies a head's rows from `row` on: head H + h of qkv is head h of K, 2 H + h is head h of V.
  __device__ static void copy(char* to, const CUtensorMap& map, int rows, uint64_t* full, int b,
                              int head, int row) {
#pragma unroll
    for (int block = 0; block < Rows::blocks; ++block)
      cp_async_bulk_tensor(to + block * rows * Rows::row_bytes, map, full,
                           {block * Rows::columns, head, row, b});
  }

  __device__ static void produce(const Arguments& arguments, Shared& s) {
    const int N = arguments.op.shape.N, H = arguments.op.shape.H;
    int step = 0, n = 0;
    for (int64_t i = blockIdx.x; i < arguments.items(); i += gridDim.x, ++n) {
      const Item t(arguments, static_cast<int>(i));
      const Place<q_stages> to(n);
      mbarrier_wait_parity(&s.q_empty[to.at], to.parity ^ 1);  // returns at once in the first round
      mbarrier_arrive_expect_tx(&s.q_full[to.at], sizeof s.q[0]);
      for (int c = 0; c < consumers; ++c)
        copy(s.q[to.at][c], arguments.q, query_rows, &s.q_full[to.at], t.b, t.h,
             t.query + c * query_rows);
      for (int key = 0; key < N; key += keys)
        for (int part = 1; part <= 2; ++part, ++step) {
          const Place<stages> at(step);
          mbarrier_wait_parity(&s.empty[at.at], at.parity ^ 1);
          mbarrier_arrive_expect_tx(&s.full[at.at], tile_bytes);
          copy(s.kv[at.at], arguments.kv, keys, &s.full[at.at], t.b, part * H + t.h, key);
        }
    }
  }

  // ---- Consumers ----------------------------------------------------------------------------
  // 64 queries. A thread holds wgmma's sums of rows row() and row() + 8 (half 1). For columns 8 j
  // to 8 j + 7 they start at [4 j]: (row, column), (row, column + 1), then the same of row + 8.
  struct Queries {
    float s[keys / 2];              // scores, then P
    uint32_t p[keys / wgmma_k][4];  // P * mask in 16 bits, operand A
    float o[D / 2];                 // sums of P V, not yet divided by row_sum
    float row_max[2], row_sum[2];   // as in attention.cu, row_sum of this thread's columns
  };
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) % warpgroup / 32 * 16 +
           static_cast<int>(threadIdx.x) % 32 / 4;
  }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 4 * 2; }

  static constexpr float rescale_threshold = 8;
  static constexpr float initial_max = -0x1p127f;  // not -inf, whose differences are NaN

  // Releases the block's step-th tile, which this warp no longer reads.
  __device__ static void release(Shared& s, int step) { arrive(&s.empty[Place<stages>(step).at]); }
  // Waits until the bytes of the block's step-th tile have arrived; returns the tile.
  __device__ static const char* wait_for(Shared& s, int step) {
    const Place<stages> at(step);
    mbarrier_wait_parity(&s.full[at.at], at.parity);
    return s.kv[at.at];
  }

  __device__ static void start_scores(Queries& x, const char* q, const char* k) {
    wgmma_fence(x.s);
#pragma unroll
    for (int part = 0; part < Rows::parts; ++part)
      wgmma_mma_async<T>(x.s, Rows::over_channels(q, query_rows, part),
                         Rows::over_channels(k, keys, part), part > 0);
    wgmma_commit_group();
  }
  __device__ static void start_out(Queries& x, const char* v, bool adds) {
    wgmma_fence(x.p, x.o);
#pragma unroll
    for (int part = 0; part < keys / wgmma_k; ++part)
      wgmma_mma_async<T, Major::mn>(x.o, x.p[part], Rows::over_rows(v, keys, part),
                                    adds || part > 0);
    wgmma_commit_group();
  }

  // Masks keys from `left` on.
  __device__ static void mask(Queries& x, int left) {
#pragma unroll
    for (int i = 0; i < keys / 2; ++i)
      if (i / 4 * 8 + column() + i % 2 >= left) x.s[i] = -INFINITY;
  }

  // Raises row_max to the largest score so far, in the first tile or if a score exceeds it by the
  // threshold.
  __device__ static void find_max(Queries& x, float scale, bool first) {
    float max[2] = {initial_max, initial_max};
#pragma unroll
    for (int i = 0; i < keys / 2; ++i) max[i / 2 % 2] = fmaxf(max[i / 2 % 2], x.s[i]);
    bool exceeds = first;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      exceeds |= fmaf(max[half], scale, -x.row_max[half]) > rescale_threshold;
    if (!__any_sync(~0u, exceeds)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float row_max = fmaxf(x.row_max[half], warp_max<4>(max[half]) * scale);
      const float factor = ex2_approx_ftz(x.row_max[half] - row_max);
      x.row_max[half] = row_max;
      x.row_sum[half] *= factor;
      if (first) continue;
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        x.o[4 * i + 2 * half] *= factor;
        x.o[4 * i + 2 * half + 1] *= factor;
      }
    }
  }

  // Zeros the elements of P that dropout drops; `key` is the first key of P.
  __device__ static void drop(Queries& x, const AttentionForward& op, const Item& t, int key) {
    const auto N = static_cast<uint64_t>(op.shape.N);
    const KeepDecisions keep(op, t.b);
    const uint64_t decision = (t.h * N + t.query + row()) * N + key;
    const auto columns = [&]<int first, int count>() {
      uint32_t bits[2];
      keep_bits<2, count>(bits, keep, decision + first, 8 * N);
#pragma unroll
      for (int i = first / 2; i < (first + count) / 2; ++i)
        if (!(bits[i / 2 % 2] >> column() & 1u << (i / 4 * 8 - first + i % 2))) x.s[i] = 0;
    };
    [&]<int... i>(std::integer_sequence<int, i...>) {
      (columns.template operator()<32 * i, 32>(), ...);
    }
    (std::make_integer_sequence<int, keys / 32>());
    if constexpr (keys % 32 != 0) columns.template operator()<keys / 32 * 32, keys % 32>();
  }

  // Computes P = exp2(s * scale - row_max) and its sum, applies dropout and rounds P as operand A.
  __device__ static void find_p(Queries& x, const AttentionForward& op, const Item& t, int key,
                                float scale) {
#pragma unroll
    for (int i = 0; i < keys / 2; ++i) {
      const int half = i / 2 % 2;
      x.s[i] = ex2_approx_ftz(fmaf(x.s[i], scale, -x.row_max[half]));
      x.row_sum[half] += x.s[i];
    }
    if constexpr (dropout) drop(x, op, t, key);
#pragma unroll
    for (int i = 0; i < keys / 4; ++i) x.p[i / 4][i % 4] = cvt_rn_x2<T>(x.s[2 * i], x.s[2 * i + 1]);
  }

  // Writes out = o / row_sum to the place of the queries, and lse for rows below Q.
  __device__ static void write(Queries& x, char* to, float* lse, int left, float keep_factor) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = warp_sum<4>(x.row_sum[half]);
      factor[half] = keep_factor * rcp_approx_ftz(sum);
      const int at = row() + 8 * half;
      if (threadIdx.x % 4 == 0 && at < left)
        lse[at] = (x.row_max[half] + lg2_approx_ftz(sum)) * 0.693147181f;
    }
    const int lane = static_cast<int>(threadIdx.x) % warp_size, at = row() - lane / 4 + lane % 16;
#pragma unroll
    for (int j = 0; j < D / 16; ++j) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = cvt_rn_x2<T>(x.o[8 * j + 2 * i] * factor[i % 2],
                                x.o[8 * j + 2 * i + 1] * factor[i % 2]);
      stmatrix_x4(to + Rows::offset(query_rows, at, 2 * j + lane / 16), pairs);
    }
  }
  __device__ static void store(const Arguments& arguments, const char* from, const Item& t,
                               int consumer) {
    fence_proxy_async();
    bar_sync(1 + consumer, warpgroup);
    if (threadIdx.x % warpgroup != 0) return;
#pragma unroll
    for (int block = 0; block < Rows::blocks; ++block)
      cp_async_bulk_tensor_store(arguments.out, from + block * query_rows * Rows::row_bytes,
                                 {block * Rows::columns, t.h, t.query, t.b});
    cp_async_bulk_commit_group();
  }
  // Releases the queries of the block's n-th item, once TMA has read the out staged in their place.
  __device__ static void release_queries(Shared& s, int n) {
    if (threadIdx.x % warpgroup == 0) cp_async_bulk_wait_group_read<0>();
    arrive(&s.q_empty[Place<q_stages>(n).at]);
  }

  // Computes the consumer's queries of the block's n-th item, over all keys. The previous item's
  // queries are released here, while the first product runs.
  __device__ static void attend(const Arguments& arguments, Shared& s, const Item& t, int consumer,
                                int n, int step) {
    const auto& op = arguments.op;
    const int N = op.shape.N;
    const float scale = log2_e / sqrtf(D);
    char* const q = s.q[Place<q_stages>(n).at][consumer];
    Queries x;
    x.row_max[0] = x.row_max[1] = initial_max;
    x.row_sum[0] = x.row_sum[1] = 0;
    start_scores(x, q, wait_for(s, step));
    if (n > 0) release_queries(s, n - 1);
#pragma unroll 1
    for (int key = 0; key < N; key += keys, step += 2) {
      wgmma_wait_group<0>(x.s, x.o);
      release(s, step);
      if (key > 0) release(s, step - 1);
      if (key + keys > N) mask(x, N - key);
      find_max(x, scale, key == 0);
      find_p(x, op, t, key, scale);
      start_out(x, wait_for(s, step + 1), key > 0);
      if (key + keys < N) start_scores(x, q, wait_for(s, step + 2));
    }
    wgmma_wait_group<0>(x.o);
    release(s, step - 1);
    bar_sync(1 + consumer, warpgroup);  // a warp's wait doesn't end what the others' parts read
    write(x, q, op.lse + int64_t{t.head} * op.shape.Q + t.query, op.shape.Q - t.query,
          dropout ? keep_scale(op.drop) : 1);
    store(arguments, q, t, consumer);
  }
  // Replaces attend() if the consumer has no queries in the item: releases without computing.
  __device__ static void pass(Shared& s, int n, int step, int end) {
    if (n > 0) release_queries(s, n - 1);
    for (; step < end; ++step) wait_for(s, step), release(s, step);
  }

  __device__ static void consume(const Arguments& arguments, Shared& s) {
    const int consumer = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup, 0) - 1;
    const int steps = 2 * ceil_div(arguments.op.shape.N, keys);
    int n = 0;
    for (int64_t i = blockIdx.x; i < arguments.items(); i += gridDim.x, ++n) {
      Item t(arguments, static_cast<int>(i));
      t.query += consumer * query_rows;
      const Place<q_stages> at(n);
      mbarrier_wait_parity(&s.q_full[at.at], at.parity);
      if (t.query < arguments.op.shape.Q)
        attend(arguments, s, t, consumer, n, n * steps);
      else
        pass(s, n, n * steps, (n + 1) * steps);
    }
    release_queries(s, n - 1);  // shared memory must exist until TMA has read it
  }
};

template <class T, int D, int keys, bool dropout>
__global__ void __launch_bounds__(sm90::threads, 1)
    attention_forward_sm90(const __grid_constant__ Arguments arguments) {
  Attention<T, D, keys, dropout>::run(arguments);
}

// ---- The host's side ------------------------------------------------------------------------
// Calls f.template operator()<keys>() with the tile size that needs the least padding for N keys.
template <int D, class F>
void by_tile(int N, F f) {
  const auto padded = [N](int keys) { return ceil_div(N, keys) * keys; };
  constexpr int widest = D == 128 ? 128 : 208, middle = 80;
  if (padded(widest) <= std::min(padded(middle), padded(64)))
    return f.template operator()<widest>();
  if (padded(middle) <= padded(64)) return f.template operator()<middle>();
  f.template operator()<64>();
}

}  // namespace

template <>
bool HopperKernels::takes(const AttentionForward& op) const {
  const auto& s = op.shape;
  return op.dtype != DType::fp32 && (s.D == 32 || s.D == 64 || s.D == 128) &&
         Arguments{.op = op}.items() <= INT32_MAX;
}
template <>
size_t HopperKernels::workspace(const AttentionForward&) const {
  return 0;
}
template <>
void HopperKernels::run(const AttentionForward& op, cudaStream_t stream) {
  check_attention(op, props_, "AttentionForward");
  by_variant(op, [&]<class T, int D, bool dropout> {
    by_tile<D>(op.shape.N, [&]<int keys> {
      const auto& [B, N, H, head_dim, Q] = op.shape;
      const Heads queries{op.qkv, B, N, Q, 3 * H, D}, keys_and_values{op.qkv, B, N, N, 3 * H, D},
          out{op.out, B, Q, Q, H, D};
      const Arguments arguments{.q = head_map(op.dtype, queries, query_rows),
                                .kv = head_map(op.dtype, keys_and_values, keys),
                                .out = head_map(op.dtype, out, query_rows),
                                .op = op};
      const auto blocks = std::min<int64_t>(arguments.items(), props_.blocks);
      launch<attention_forward_sm90<T, D, keys, dropout>>(
          static_cast<int>(blocks), sm90::threads,
          sizeof(typename Attention<T, D, keys, dropout>::Shared), stream, arguments);
    });
  });
}

}  // namespace bv::BAREVISION_GPU
