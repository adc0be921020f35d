// attention backward (attention_backward.cu) on Hopper, in 16 bits, for heads of 64 channels. A
// block computes a whole head, with up to 256 of its keys at a time, so that each of the five
// products is computed once. P and dS are computed transposed, so that wgmma's sums are the next
// product's operand A in registers:
//   S^T = K Q^T       P^T = exp2(S^T scale - lse)     dV = P'^T dout    P' = P * mask / (1 - drop)
//   dP^T = V dout^T   dS^T = P^T * (dP'^T - delta)    dK = dS^T Q       all =
//   dQ = dS K, with dS in shared memory
// delta = rowsum(dout * out). P and dS are rounded to 16 bits, sums are fp32 in a fixed order.
//
//   grid       one block per SM, which computes every gridDim.x-th head
//   part       256 keys of a head. Each part loops over all queries in tiles of 64. dQ of a tile is
//              summed over the parts in order, in fp32 in the workspace until the last part.
//   warpgroup  two, each of which computes every second tile of 64 keys, with the sums of dK and dV
//              in registers. They alternate in computing dQ: one computes and stores dQ of a tile
//              while the other begins with the next tile.
//   warps      three more. One issues TMA copies of the next part's K and V, and of tiles of Q,
//              dout and out. The other two compute lse in base 2 and delta of each query.
// Shared memory holds K and V of two parts; Q and dout of three query tiles, `out` of two and dS of
// one, all in rows of 128 bytes, swizzled as wgmma reads them.
//
// Limited by memory bandwidth. A head of 197 tokens moves 202 KB, 14,000 clocks at an SM's share of
// an H100's bandwidth (3.35 TB/s at 1.755 GHz). Meanwhile shared memory is busy for 9,500 clocks,
// tensor cores for 8,700 (9,900 if the last 5 queries took a whole tile), schedulers for 8,000, and
// exponentials take 3,300. With dropout, Philox is the limit: 18,000 clocks per scheduler. With
// several parts, each query tile of each part moves 56 KB between L2 and the SM, of which 32 KB are
// dQ's sums, during the 2,600 clocks of its products: 21 of about 32 bytes per clock.
#include "kernels/attention/attention_sm90.cuh"

namespace bv::BAREVISION_GPU {
namespace {
using sm90::KMajor, sm90::RowMajor, sm90::warpgroup, sm90::wgmma_k;

constexpr int head_dim = 64, row_bytes = head_dim * 2, part_keys = 256;
constexpr float score_scale = .125;  // 1 / sqrt(head_dim)
static_assert(score_scale * score_scale * head_dim == 1);
constexpr int tile = 64, tile_bytes = tile * row_bytes;  // of keys or queries
constexpr int few_queries = 16;                          // tokens are often 64 n + 1 or 64 n + 5
constexpr int groups = 2, group_tiles = part_keys / tile / groups;  // warpgroups with keys
constexpr int group_warps = warpgroup / warp_size, key_warps = groups * group_warps;
constexpr int threads = (1 + groups) * warpgroup;  // the first warpgroup has the other warps
constexpr int copy_warp = 0, first_stats_warp = 1, stats_warps = tile / warp_size;

struct Arguments {
  // Tensor maps; a box is 64 tokens of a head:
  CUtensorMap q;           // [B, Q, 3H, D]: the queries of qkv
  CUtensorMap qkv;         // [B, N, 3H, D]
  CUtensorMap dout, out;   // [B, Q, H, D]
  int heads;               // of all images
  int query_tiles, parts;  // of a head
  float keep;              // the dropout factor of kept elements
  AttentionBackward op;

  // The number of parts of all of the block's heads.
  __device__ int block_parts() const {
    return ceil_div(heads - static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)) * parts;
  }
};
// The block's n-th part.
struct Part {
  int n;
  int head;  // index among the block's heads
  int b, h;
  int first;  // key

  __device__ Part(const Arguments& arguments, int number)
      : n(number), head(n / arguments.parts), first(n % arguments.parts * part_keys) {
    const int H = arguments.op.shape.H,
              of_all = static_cast<int>(blockIdx.x) + head * static_cast<int>(gridDim.x);
    b = of_all / H, h = of_all % H;
  }
  __device__ int keys(int N) const { return min(N - first, part_keys); }
  __device__ bool last(int N) const { return N - first <= part_keys; }
};

// ---- Shared memory ------------------------------------------------------------------------------
constexpr int key_places = 2, query_places = 3, out_places = 2;

struct Keys {  // a part's
  alignas(1024) char k[groups * group_tiles][tile_bytes];
  alignas(1024) char v[groups * group_tiles][tile_bytes];
};
struct Queries {  // a tile of them
  alignas(1024) char q[tile_bytes];
  alignas(1024) char dout[tile_bytes];
};
struct Stats {                   // of a tile of queries
  float lse[tile], delta[tile];  // lse in base 2
};
struct Shared {
  Keys keys[key_places];
  Queries queries[query_places];
  alignas(1024) char out[out_places][tile_bytes];
  alignas(1024) char ds[groups * group_tiles][tile_bytes];  // dS^T: a row is a key, 64 queries
  alignas(16) Stats stats[query_places];
  // mbarriers: `full` completes a phase when the data has arrived, `empty` once readers are done
  uint64_t keys_full[key_places], keys_empty[key_places];
  uint64_t queries_full[query_places], queries_empty[query_places];  // full: out has arrived, too
  uint64_t stats_full[query_places];
  uint64_t out_empty[out_places];
  uint64_t ds_full, ds_empty;
};
static_assert(sizeof(Shared) <= sm90::shared_bytes);

using KeyPlace = Place<key_places>;
using QueryPlace = Place<query_places>;
using OutPlace = Place<out_places>;
using DsPlace = Place<1>;

__device__ void init_barriers(Shared& s) {
  for (int i = 0; i < key_places; ++i)
    mbarrier_init(&s.keys_full[i], 1), mbarrier_init(&s.keys_empty[i], key_warps);
  for (int i = 0; i < query_places; ++i) {
    mbarrier_init(&s.queries_full[i], 1), mbarrier_init(&s.queries_empty[i], key_warps);
    mbarrier_init(&s.stats_full[i], stats_warps);
  }
  for (int i = 0; i < out_places; ++i) mbarrier_init(&s.out_empty[i], stats_warps);
  mbarrier_init(&s.ds_full, key_warps), mbarrier_init(&s.ds_empty, group_warps);
  fence_mbarrier_init();
}

// ---- Copies -------------------------------------------------------------------------------------
// In a place's first round, the waits for `empty` return at once.
__device__ void copy_keys(const Arguments& arguments, Shared& s, const Part& part) {
  const int H = arguments.op.shape.H, tiles = ceil_div(part.keys(arguments.op.shape.N), tile);
  const KeyPlace to(part.n);
  mbarrier_wait_parity_untimed(&s.keys_empty[to.at], to.parity ^ 1);
  uint64_t* const full = &s.keys_full[to.at];
  mbarrier_arrive_expect_tx(full, 2 * tiles * tile_bytes);
  for (int i = 0; i < tiles; ++i) {
    const int key = part.first + i * tile;
    cp_async_bulk_tensor(s.keys[to.at].k[i], arguments.qkv, full, {0, H + part.h, key, part.b});
    cp_async_bulk_tensor(s.keys[to.at].v[i], arguments.qkv, full, {0, 2 * H + part.h, key, part.b});
  }
}
__device__ void copy_queries(const Arguments& arguments, Shared& s, const Part& part, int first,
                             unsigned done) {
  const int b = part.b, h = part.h;
  const QueryPlace to(done);
  const OutPlace to_out(done);
  mbarrier_wait_parity_untimed(&s.queries_empty[to.at], to.parity ^ 1);
  mbarrier_wait_parity_untimed(&s.out_empty[to_out.at], to_out.parity ^ 1);
  uint64_t* const full = &s.queries_full[to.at];
  mbarrier_arrive_expect_tx(full, 3 * tile_bytes);
  cp_async_bulk_tensor(s.queries[to.at].q, arguments.q, full, {0, h, first, b});
  cp_async_bulk_tensor(s.queries[to.at].dout, arguments.dout, full, {0, h, first, b});
  cp_async_bulk_tensor(s.out[to_out.at], arguments.out, full, {0, h, first, b});
}
// Called by one thread. The next part's keys are copied after the first query tiles of this part,
// one per place: by then the previous part has released its keys, or is about to.
__device__ void copy(const Arguments& arguments, Shared& s) {
  const int parts = arguments.block_parts(), ahead = min(query_places, arguments.query_tiles);
  unsigned done = 0;
  copy_keys(arguments, s, Part(arguments, 0));
  for (int n = 0; n < parts; ++n) {
    const Part part(arguments, n);
    for (int i = 0; i < arguments.query_tiles; ++i) {
      copy_queries(arguments, s, part, i * tile, done++);
      if (i + 1 == ahead && n + 1 < parts) copy_keys(arguments, s, Part(arguments, n + 1));
    }
  }
}

// ---- lse and delta ------------------------------------------------------------------------------
// The dot product of a query's rows of dout and out, 8 bytes at a time to save registers, in an
// order in which 16 rows read different banks.
template <class T>
__device__ float dot(const char* dout, const char* out, unsigned row) {
  const unsigned begin = row * row_bytes + row % 8 * 16 + row / 8 % 2 * 8;
  float sum = 0;
#pragma unroll 1
  for (unsigned i = 0; i < row_bytes; i += 8) {
    const auto a = load<4>(reinterpret_cast<const T*>(dout + (begin ^ i))),
               b = load<4>(reinterpret_cast<const T*>(out + (begin ^ i)));
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += to_float(a.at[j]) * to_float(b.at[j]);
  }
  return sum;
}
template <class T>
__device__ void find_stats(const Arguments& arguments, Shared& s) {
  const auto own = [] { return static_cast<int>(mov_tid_x()) - first_stats_warp * warp_size; };
  const int Q = arguments.op.shape.Q, step = static_cast<int>(gridDim.x);
  int head = static_cast<int>(blockIdx.x), part = 0, first = 0;
  for (unsigned done = 0; head < arguments.heads; ++done) {
    const QueryPlace at(done);
    const OutPlace out(done);
    float lse = 0;  // from row Q on any finite value works: q and dout are zeros there
    if (const int row = first + own(); row < Q)
      lse = arguments.op.lse[int64_t{head} * Q + row] * log2_e;
    mbarrier_wait_parity_untimed(&s.queries_full[at.at], at.parity);
    s.stats[at.at].lse[own()] = lse;
    s.stats[at.at].delta[own()] = dot<T>(s.queries[at.at].dout, s.out[out.at], own());
    arrive(&s.stats_full[at.at]);
    arrive(&s.out_empty[out.at]);
    first += tile;
    if (first >= Q) first = 0, ++part;
    if (part == arguments.parts) part = 0, head += step;
  }
}

// ---- Products -----------------------------------------------------------------------------------
// wgmma's sums of 64 rows and `columns` columns. For columns 8 j to 8 j + 7, a thread's sums start
// at [4 j]: (row, column), (row, column + 1), then the same of row + 8.
template <int columns>
using Sums = float[columns / 2];
// The sums for a tile of queries, rounded to 16 bits, as operands A: one for every 16 columns.
using Operand = uint32_t[tile / wgmma_k][4];

// Recomputed at each call, so that the results occupy no register in between.
__device__ int warp_row() { return static_cast<int>(mov_tid_x() % warpgroup / warp_size) * 16; }
__device__ int lane_row() { return static_cast<int>(mov_tid_x() % warp_size / 4); }
__device__ int lane_column() { return static_cast<int>(mov_tid_x() % 4 * 2); }

// sums = a b^T over the channels: rows are keys, columns queries.
template <class T, size_t n>
__device__ void start_scores(float (&sums)[n], const char* a, const char* b) {
#pragma unroll
  for (int k = 0; k < head_dim / wgmma_k; ++k)
    wgmma_mma_async<T>(sums, KMajor::descriptor(a, k), KMajor::descriptor(b, k), k > 0);
  wgmma_commit_group();
}
// sums (+)= a b over the queries.
template <class T, int queries>
__device__ void start_gradient(Sums<head_dim>& sums, const Operand& a, const char* b, bool adds) {
#pragma unroll
  for (int k = 0; k < queries / wgmma_k; ++k)
    wgmma_mma_async<T, Major::mn>(sums, a[k], RowMajor::descriptor(b, k), adds || k > 0);
  wgmma_commit_group();
}

// Stores sums * factor in the rows from `first` to `end`, and zeros from there to row N.
template <class T>
__device__ void store_rows(Rows<T> to, int first, const Sums<head_dim>& sums, float factor, int end,
                           int N) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + warp_row() + lane_row() + 8 * half;
#pragma unroll
    for (int c = 0; c < head_dim / 32; ++c) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = sums + 16 * c + 4 * i + 2 * half;
        x[i] = cvt_rn_x2<T>(pair[0] * factor, pair[1] * factor);
        x[i] = row < end ? x[i] : 0;
      }
      transpose_in_four(x);
      if (row < N)
        st_global(reinterpret_cast<uint4*>(to[row] + 32 * c + mov_tid_x() % 4 * 8),
                  {x[0], x[1], x[2], x[3]});
    }
  }
}

// ---- Scores -------------------------------------------------------------------------------------
// A warp's rows: 16 keys of a head.
struct WarpKeys {
  int first, N;

  __device__ bool any() const { return first < N; }
  __device__ bool all() const { return first + 16 <= N; }
  // Whether there is a key at accumulator i.
  __device__ bool has(int i) const { return first + lane_row() + i / 2 % 2 * 8 < N; }
};

// Dropout decisions for these keys and a tile's queries: bit i is for accumulator i.
__device__ uint32_t draw_kept(const AttentionBackward& op, int b, int h, const WarpKeys& keys,
                              int first) {
  uint32_t kept = 0;
  const int from = static_cast<int>(mov_tid_x() % 4 * 8), key = lane_row();
#pragma unroll 1
  for (int i = 0; i < tile / 16 && first + 16 * i < op.shape.Q; ++i) {
    // kept_tile() has queries in rows; here they are columns.
    const uint32_t rows = kept_tile(op, b, h, first + 16 * i, keys.first);
    const auto of_column = [&](int lane) {  // bits 0, 2, 4, 6
      const uint32_t bits = __shfl_sync(~0u, rows, lane) >> key & 0x01010101;
      return (bits | bits >> 6 | bits >> 12 | bits >> 18) & 0x55;
    };
    kept |= (of_column(from) | of_column(from + 4) << 1) << 8 * i;
  }
  return kept;
}

// Computes P^T from S^T, in place.
template <size_t n>
__device__ void find_p(float (&p)[n], const WarpKeys& keys, const float* lse) {
#pragma unroll
  for (int i = 0; i < int(n); ++i)
    p[i] =
        ex2_approx_ftz(fmaf(p[i], score_scale * log2_e, -lse[i / 4 * 8 + lane_column() + i % 2]));
  if (keys.all()) return;
#pragma unroll
  for (int i = 0; i < int(n); ++i) p[i] = keys.has(i) ? p[i] : 0;
}
// P is never negative, so a negative sign can mark dropped elements, which takes no register.
template <size_t n>
__device__ void mark_dropped(float (&p)[n], uint32_t kept) {
#pragma unroll
  for (int i = 0; i < int(n); ++i) p[i] = kept >> i & 1 ? p[i] : -p[i];
}
template <class T, bool dropout, size_t n>
__device__ void round_p(Operand& to, const float (&p)[n], float keep) {
  const auto dropped = [&](float x) { return dropout ? fmaxf(x, 0) * keep : x; };
#pragma unroll
  for (int i = 0; i < int(n) / 2; ++i)
    to[i / 4][i % 4] = cvt_rn_x2<T>(dropped(p[2 * i]), dropped(p[2 * i + 1]));
}
// Computes dS^T from P^T and dP^T.
template <class T, bool dropout, size_t n>
__device__ void find_ds(Operand& ds, const float (&p)[n], const float (&dp)[n], const float* delta,
                        float keep) {
  const auto of = [&](int i) {
    const float own_delta = delta[i / 4 * 8 + lane_column() + i % 2];
    if constexpr (dropout) return fabsf(p[i]) * ((p[i] > 0 ? dp[i] * keep : 0) - own_delta);
    return p[i] * (dp[i] - own_delta);
  };
#pragma unroll
  for (int i = 0; i < int(n) / 2; ++i) ds[i / 4][i % 4] = cvt_rn_x2<T>(of(2 * i), of(2 * i + 1));
}
// Stores dS^T of this warp's keys, in rows of 64 queries of which it writes the first `queries`.
template <int queries>
__device__ void store_ds(char* rows, const Operand& ds) {
  const int lane = static_cast<int>(mov_tid_x() % warp_size), row = lane % 16;
#pragma unroll
  for (int i = 0; i < queries / wgmma_k; ++i)
    stmatrix_x4(rows + row * row_bytes + ((2 * i + lane / 16) ^ row % 8) * 16, ds[i]);
}

// ---- A tile of queries --------------------------------------------------------------------------
// The key tiles of a part that a warpgroup computes: group, group + groups, ...
struct GroupPart : Part {
  int group;
  int tiles;

  __device__ GroupPart(const Arguments& arguments, int part, int own)
      : Part(arguments, part),
        group(own),
        tiles(ceil_div(ceil_div(keys(arguments.op.shape.N), tile) - group, groups)) {}
  __device__ int key_tile(int m) const { return group + m * groups; }
  __device__ int key(int m) const { return first + key_tile(m) * tile; }
  __device__ WarpKeys warp_keys(int m, int N) const { return {key(m) + warp_row(), N}; }
};
// The tile of a head's queries from `first` on; the block has computed `done` tiles before it.
struct QueryTile {
  int first;
  unsigned done;
  uint32_t kept[group_tiles];  // dropout decisions for the m-th key tile
};
// The warpgroup's gradients, and their operands, which stay in place while wgmma reads them.
struct Gradients {
  Sums<head_dim> dk[group_tiles], dv[group_tiles];
  Operand p, ds;
};

// Adds `queries` queries to the gradients of the m-th key tile, and stores dS. The last products
// are still in flight on return.
template <class T, bool dropout, int queries, int m>
__device__ void add_queries(const Arguments& arguments, Shared& s, const GroupPart& part,
                            const QueryTile& own, Gradients& g) {
  const int key_tile = part.key_tile(m);
  const WarpKeys warp_keys = part.warp_keys(m, arguments.op.shape.N);
  const Keys& keys = s.keys[KeyPlace(part.n).at];
  const QueryPlace at(own.done);
  Sums<queries> p, dp;
  wgmma_fence(p);
  start_scores<T>(p, keys.k[key_tile], s.queries[at.at].q);
  wgmma_wait_group<1>();  // for the products of key tile m - 1: dp takes the registers of its dS
  wgmma_fence(dp);
  start_scores<T>(dp, keys.v[key_tile], s.queries[at.at].dout);
  wgmma_wait_group<1>(p);
  find_p(p, warp_keys, s.stats[at.at].lse);
  if constexpr (dropout) mark_dropped(p, own.kept[m]);
  round_p<T, dropout>(g.p, p, arguments.keep);
  wgmma_fence(g.p);
  start_gradient<T, queries>(g.dv[m], g.p, s.queries[at.at].dout, own.first > 0);
  wgmma_wait_group<dropout ? 0 : 1>(dp);  // with dropout, dS needs the registers of P
  find_ds<T, dropout>(g.ds, p, dp, s.stats[at.at].delta, arguments.keep);
  if (m == 0) mbarrier_wait_parity(&s.ds_empty, DsPlace(own.done).parity ^ 1);
  if (warp_keys.any()) store_ds<queries>(s.ds[key_tile] + warp_row() * row_bytes, g.ds);
  wgmma_fence(g.ds);
  start_gradient<T, queries>(g.dk[m], g.ds, s.queries[at.at].q, own.first > 0);
}
// The same for all of the warpgroup's key tiles. No product is in flight where control flow joins,
// else ptxas serialises the wgmmas (C7512).
template <class T, bool dropout, int queries>
__device__ void add_queries(const Arguments& arguments, Shared& s, const GroupPart& part,
                            const QueryTile& own, Gradients& g) {
  static_assert(group_tiles == 2);
  if (part.tiles == 2) {
    add_queries<T, dropout, queries, 0>(arguments, s, part, own, g);
    add_queries<T, dropout, queries, 1>(arguments, s, part, own, g);
    wgmma_wait_group<0>();
  } else if (part.tiles == 1) {
    add_queries<T, dropout, queries, 0>(arguments, s, part, own, g);
    wgmma_wait_group<0>();
  } else {
    mbarrier_wait_parity(&s.ds_empty, DsPlace(own.done).parity ^ 1);
  }
}

// Memory for the tile's dQ between two parts, in register order. The same warpgroup computes a
// tile's dQ for all parts, so that each thread reads what it has written.
__device__ float4* partial_dq(const Arguments& arguments, const QueryTile& own) {
  constexpr int thread_sums = head_dim * tile / warpgroup / 4;
  const int64_t tiles = int64_t{blockIdx.x} * arguments.query_tiles + own.first / tile;
  return static_cast<float4*>(arguments.op.workspace) + tiles * thread_sums * warpgroup +
         mov_tid_x() % warpgroup;
}
__device__ void load_partial(Sums<head_dim>& dq, const float4* from) {
#pragma unroll
  for (int i = 0; i < head_dim / 8; ++i) {
    const float4 x = from[i * warpgroup];
    dq[4 * i] = x.x, dq[4 * i + 1] = x.y, dq[4 * i + 2] = x.z, dq[4 * i + 3] = x.w;
  }
}
__device__ void store_partial(float4* to, const Sums<head_dim>& dq) {
#pragma unroll
  for (int i = 0; i < head_dim / 8; ++i)
    to[i * warpgroup] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
}
// Adds dS K of the part's keys to the tile's dQ.
template <class T>
__device__ void find_dq(const Arguments& arguments, Shared& s, const GroupPart& part,
                        const QueryTile& own) {
  const auto& op = arguments.op;
  uint64_t ds = RowMajor::descriptor(s.ds[0], 0),
           k = RowMajor::descriptor(s.keys[KeyPlace(part.n).at].k[0], 0);
  Sums<head_dim> dq;
  const bool adds = part.first > 0;
  if (adds) load_partial(dq, partial_dq(arguments, own));
  mbarrier_wait_parity(&s.ds_full, DsPlace(own.done).parity);
  wgmma_fence(dq);
  int key = 0;
#pragma unroll 1
  do {
    wgmma_fence();  // else ptxas inserts one where it serialises the wgmmas (C7520)
    wgmma_mma_async<T, Major::mn, Major::mn>(dq, ds, k, adds || key > 0);
    wgmma_commit_group();
    ds = wgmma_advance(ds, wgmma_k * row_bytes), k = wgmma_advance(k, wgmma_k * row_bytes);
    key += wgmma_k;
  } while (key < part.keys(op.shape.N));
  wgmma_wait_group<0>(dq);
  arrive(&s.ds_empty);
  if (part.last(op.shape.N))
    store_rows(rows_of(static_cast<T*>(op.dqkv), op, 3, 0, part.b, part.h), own.first, dq,
               score_scale, op.shape.Q, op.shape.N);
  else
    store_partial(partial_dq(arguments, own), dq);
}

// ---- A part -------------------------------------------------------------------------------------
// Sets dQ of the tiles without queries to 0.
template <class T>
__device__ void clear_dq(const Arguments& arguments, const GroupPart& part) {
  const auto& op = arguments.op;
  const Sums<head_dim> none{};
  for (int i = arguments.query_tiles + part.group; i < ceil_div(op.shape.N, tile); i += groups)
    store_rows(rows_of(static_cast<T*>(op.dqkv), op, 3, 0, part.b, part.h), i * tile, none, 0, 0,
               op.shape.N);
}
template <class T>
__device__ void store_key_gradients(const AttentionBackward& op, const GroupPart& part,
                                    const Gradients& g) {
  const int N = op.shape.N;
  auto* const dqkv = static_cast<T*>(op.dqkv);
  const auto dk = rows_of(dqkv, op, 3, 1, part.b, part.h),
             dv = rows_of(dqkv, op, 3, 2, part.b, part.h);
#pragma unroll
  for (int m = 0; m < group_tiles; ++m) {
    if (m >= part.tiles) break;
    store_rows(dk, part.key(m), g.dk[m], score_scale, N, N);
    store_rows(dv, part.key(m), g.dv[m], 1, N, N);
  }
}

// Computes the warpgroup's tiles of a part; the block has computed `done` tiles of queries before.
template <class T, bool dropout>
__device__ void find_gradients(const Arguments& arguments, Shared& s, const GroupPart& part,
                               unsigned done) {
  const auto& op = arguments.op;
  Gradients g;
  const KeyPlace keys(part.n);
  mbarrier_wait_parity(&s.keys_full[keys.at], keys.parity);
  wgmma_fence(g.dk, g.dv);
#pragma unroll 1
  for (int first = 0; first < op.shape.Q; first += tile, ++done) {
    QueryTile own{first, done, {}};
    if constexpr (dropout) {
#pragma unroll
      for (int m = 0; m < group_tiles; ++m)
        own.kept[m] = draw_kept(op, part.b, part.h, part.warp_keys(m, op.shape.N), first);
    }
    const QueryPlace at(done);
    mbarrier_wait_parity(&s.queries_full[at.at], at.parity);
    mbarrier_wait_parity(&s.stats_full[at.at], at.parity);
    if (op.shape.Q - first > few_queries)
      add_queries<T, dropout, tile>(arguments, s, part, own, g);
    else
      add_queries<T, dropout, few_queries>(arguments, s, part, own, g);
    fence_proxy_async();  // dS
    arrive(&s.ds_full);
    arrive(&s.queries_empty[at.at]);
    if ((part.head * arguments.query_tiles + first / tile) % groups == part.group)
      find_dq<T>(arguments, s, part, own);
  }
  wgmma_wait_group<0>(g.dk, g.dv);
  arrive(&s.keys_empty[keys.at]);
  if (part.first == 0) clear_dq<T>(arguments, part);
  store_key_gradients<T>(op, part, g);
}

// ---- The kernel ---------------------------------------------------------------------------------
template <class T, bool dropout>
__global__ void __launch_bounds__(threads, 1)
    attention_backward_sm90(const __grid_constant__ Arguments arguments) {
  auto& s = shared<Shared>();
  if (threadIdx.x == 0) init_barriers(s);
  __syncthreads();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warp_size, 0);
  if (warp < group_warps) {
    setmaxnreg_dec<sm90::producer_registers>();
    await_kernel_ahead();
    if (warp == copy_warp && threadIdx.x == 0) copy(arguments, s);
    if (warp >= first_stats_warp && warp < first_stats_warp + stats_warps)
      find_stats<T>(arguments, s);
  } else {
    setmaxnreg_inc<sm90::consumer_registers>();
    await_kernel_ahead();
    const int group = warp / group_warps - 1, parts = arguments.block_parts();
    for (int n = 0; n < parts; ++n)
      find_gradients<T, dropout>(arguments, s, GroupPart(arguments, n, group),
                                 static_cast<unsigned>(n * arguments.query_tiles));
  }
}

// One block per SM, or per head if there are fewer heads.
int blocks_for(const AttentionShape& shape, const DeviceProps& props) {
  return static_cast<int>(std::min(int64_t{shape.B} * shape.H, int64_t{props.blocks}));
}

}  // namespace

// Takes heads of several parts only if there is a head for at least half of the SMs; for fewer
// heads, attention_backward.cu divides each head's keys among blocks.
template <>
bool HopperKernels::takes(const AttentionBackward& op) const {
  const auto [B, N, H, D, Q] = op.shape;
  return op.dtype != DType::fp32 && D == head_dim &&
         (N <= part_keys || int64_t{2} * B * H >= props_.sms);
}
// Partial sums of dQ for the heads that run concurrently.
template <>
size_t HopperKernels::workspace(const AttentionBackward& op) const {
  check_attention(op, props_, "AttentionBackward");
  const auto [B, N, H, D, Q] = op.shape;
  if (N <= part_keys) return 0;
  return size_t(blocks_for(op.shape, props_)) * ceil_div(Q, tile) * tile * head_dim * sizeof(float);
}
template <>
void HopperKernels::run(const AttentionBackward& op, cudaStream_t stream) {
  check_attention(op, props_, "AttentionBackward");
  const auto [B, N, H, D, Q] = op.shape;
  const auto map = [dtype = op.dtype](const Heads& heads) { return head_map(dtype, heads, tile); };
  const Arguments arguments{.q = map({op.qkv, B, N, Q, 3 * H, D}),
                            .qkv = map({op.qkv, B, N, N, 3 * H, D}),
                            .dout = map({op.dout, B, Q, Q, H, D}),
                            .out = map({op.out, B, Q, Q, H, D}),
                            .heads = B * H,
                            .query_tiles = ceil_div(Q, tile),
                            .parts = ceil_div(N, part_keys),
                            .keep = keep_scale(op.drop),
                            .op = op};
  by_16_bits(op.dtype, [&]<class T>() {
    const auto with = [&]<bool dropout>() {
      launch<attention_backward_sm90<T, dropout>>(blocks_for(op.shape, props_), threads,
                                                  sizeof(Shared), stream, arguments);
    };
    op.drop > 0 ? with.template operator()<true>() : with.template operator()<false>();
  });
}

}  // namespace bv::BAREVISION_GPU
