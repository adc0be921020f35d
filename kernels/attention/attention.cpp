// attention: for each image and head, over the packed projections qkv [B, N, 3, H, D],
//   S = Q K^T / sqrt(D),  P = softmax(S),  out = (P * mask / (1 - drop)) V
// and backward, with dP' = dout V^T * mask / (1 - drop) and delta = rowsum(dout * out):
//   dV = (P * mask / (1 - drop))^T dout,  dS = P * (dP' - delta)
//   dQ = dS K / sqrt(D),  dK = dS^T Q / sqrt(D)                          all =
// Saved for backward: out and lse = log sum exp of each row of S, from which P is recomputed.
// Flash-style (Dao et al. 2022): S exists only as a tile of at most 48 queries x 256 keys. Forward
// is an online softmax over the key tiles. Backward loops over key tiles, then query tiles: dK and
// dV stay in a tile, dQ is accumulated in memory. Products (small_product.h) read a in place and b
// packed. 1 / sqrt(D) is applied in the exponential and when gradients are written.
// In bf16, P and dS are rounded as operands; all sums, those of the softmax included, are fp32.
// If only the first Q tokens are queries, dQ is 0 for the other tokens.
// The heads (in forward, the query tiles of all heads) are divided among the threads; each thread
// has its own tiles in the workspace. Limited by arithmetic.
#include <math.h>
#include <omp.h>

#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/small_product.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::vf;
using simd::width;

// Elements of T per element of a product (small_product.h).
template <class T>
constexpr int per_lane = sizeof(float) / sizeof(T);
template <class T>
constexpr int lanes_of(int elements) {
  return (elements + per_lane<T> - 1) / per_lane<T>;
}

template <class Op>
void check(const Op& op, const char* name) {
  require(op.shape.D > 0 && op.shape.D <= 128 && op.shape.D % 8 == 0, name,
          "D: must be a multiple of 8 up to 128");
}

// ---- tiles --------------------------------------------------------------------------------------
// `total` rows in tiles of equal size, except that the last may be smaller.
struct Tiling {
  int total, count, size;

  Tiling(int n, int max_size, int multiple)
      : total(n),
        count(Parts(n, max_size).count),
        size(round_up((n + count - 1) / count, multiple)) {
    count = Parts(n, size).count;
  }
  int begin(int tile) const { return tile * size; }
  int rows(int tile) const { return tile + 1 < count ? size : total - tile * size; }
};

// A thread's arrays, contiguous in its part of the workspace. If base is null, only counts floats.
struct Tiles {
  Tiling queries, keys;
  int D, columns;  // columns: D rounded up to whole vectors
  bool bf16;
  float* base;
  size_t floats = 0;

  template <class Op>
  Tiles(const Op& op, float* memory)
      : queries(op.shape.Q, 48, row_block),
        keys(op.shape.N, 256, width),
        D(op.shape.D),
        columns(round_up(op.shape.D, width)),
        bf16(op.dtype == DType::bf16),
        base(memory) {}

  float* take(int rows, int row_floats = 1) {
    float* at = base ? base + floats : nullptr;
    floats += (size_t(rows) * row_floats + 15) / 16 * 16;
    return at;
  }
};

struct ForwardTiles : Tiles {
  using Tiles::Tiles;
  // For the whole head, packed by key tiles:
  float* k = take(keys.count * keys.size, D);        // K^T
  float* v = take(keys.count * keys.size, columns);  // V
  float* s = take(queries.size, keys.size);          // S, then P
  float* o = take(queries.size, columns);            // P V, not yet divided by row_sum
  float* row_max = take(queries.size);               // of S / sqrt(D), over the keys so far
  float* row_sum = take(queries.size);
  float* random = take(keys.size + 8 * width);
  int packed_head = -1;
};

struct BackwardTiles : Tiles {
  using Tiles::Tiles;
  float* k_t = take(keys.size, D);  // K^T, V^T, K of a key tile, packed
  float* v_t = take(keys.size, D);
  float* k = take(keys.size, columns);
  float* q = take(queries.size, columns);  // of a query tile, packed
  float* dout = take(queries.size, columns);
  float* p = take(queries.size, keys.size);   // S, then P * mask / (1 - drop)
  float* ds = take(queries.size, keys.size);  // dP, then dS
  float* dk = take(keys.size, columns);
  float* dv = take(keys.size, columns);
  float* dq = take(bf16 ? queries.count * queries.size : queries.size, columns);
  float* ds_pairs = take(bf16 ? queries.size : 0, keys.size);
  float* random = take(keys.size + 8 * width);
};

template <class ThreadTiles, class Op>
size_t workspace_of_threads(const Op& op) {
  return ThreadTiles(op, nullptr).floats * size_t(omp_get_max_threads()) * sizeof(float);
}

// Calls body(a thread's tiles, unit) for each unit < units.
template <class ThreadTiles, class Op, class Body>
void for_each_unit(const Op& op, int units, Body body) {
  const size_t floats = ThreadTiles(op, nullptr).floats;
#pragma omp parallel
  {
    ThreadTiles mine(op, static_cast<float*>(op.workspace) + floats * size_t(omp_get_thread_num()));
#pragma omp for schedule(static)
    for (int unit = 0; unit < units; ++unit) body(mine, unit);
  }
}

// The rows of one head in [B, N, parts, H, D]: row n starts at data + n * stride.
template <class T>
struct Rows {
  T* data;
  ptrdiff_t stride;

  T* operator[](int n) const { return data + n * stride; }
};
// parts, part: 3 and 0, 1, 2 for Q, K, V; 1 and 0 for out and dout, which hold queries only.
template <class Element, class Data, class Op>
auto rows_of(Data* data, const Op& op, int parts, int part, int b, int h) {
  using T = std::conditional_t<std::is_const_v<Data>, const Element, Element>;
  const ptrdiff_t stride = ptrdiff_t(parts) * op.shape.H * op.shape.D;
  const int tokens = parts == 1 ? op.shape.Q : op.shape.N;
  return Rows<T>{static_cast<T*>(data) + b * (tokens * stride) +
                     (ptrdiff_t(part) * op.shape.H + h) * op.shape.D,
                 stride};
}

template <class T>
Factor factor(Rows<const T> rows, int first) {
  return {reinterpret_cast<const float*>(rows[first]), rows.stride / per_lane<T>, 1};
}

// If n elements don't fill the last pair, clears its second element, which products read too.
template <class T>
void end_row(T* row, int n) {
  if (n % per_lane<T> != 0) __builtin_memset(row + n, 0, sizeof(T));
}

// ---- dropout ------------------------------------------------------------------------------------
// Dropout factors for n keys of a query: 1 / (1 - drop) where kept, otherwise 0. They start up to 3
// floats into `random`, since four decisions share a counter.
template <class Op>
const float* draw(const Op& op, float* random, int b, int h, int query, int key, int n) {
  const StepParams& params = *op.params;
  const auto position = params.position + static_cast<uint32_t>(b);
  const float scale = op.drop < 1 ? 1 / (1 - op.drop) : 0;
  const uint64_t first = (static_cast<uint64_t>(h) * op.shape.N + query) * op.shape.N + key;
  const int skip = static_cast<int>(first % 4);
  for (int at = 0; at < skip + n; at += 4 * width) {
    simd::vu words[4];
    philox_words(params.seed, static_cast<uint32_t>((first + static_cast<uint64_t>(at)) / 4),
                 position, params.epoch, op.layer, words);
    for (int v = 0; v < 4; ++v)
      simd::store(random + at + v * width,
                  simd::select(uniform(words[v]) >= op.drop, simd::set(scale), vf{}));
  }
  return random + skip;
}

// ---- forward ------------------------------------------------------------------------------------
// Online softmax: overwrites a row of S with exp(S scale - row_max) * keep, of type T; keep: null
// without dropout. Updates row_max and row_sum. Returns the factor that rescales the row's earlier
// sums.
template <class T>
float softmax_row(float* s, const float* keep, int n, float scale, float& row_max, float& row_sum) {
  T* out = reinterpret_cast<T*>(s);
  vf max = simd::set(-INFINITY), sum{};
  simd::for_each(n, [&](int j, auto lanes) {
    max = simd::max(max, lanes.keep(lanes.load(s + j), simd::set(-INFINITY)));
  });
  const float tile_max = simd::reduce_max(max) * scale;
  const float new_max = tile_max > row_max ? tile_max : row_max;
  simd::for_each(n, [&](int j, auto lanes) {
    const vf p = simd::exp(simd::fma(lanes.load(s + j), simd::set(scale), simd::set(-new_max)));
    sum += lanes.keep(p);
    lanes.store(out + j, keep ? p * lanes.load(keep + j) : p);
  });
  end_row(out, n);
  const float factor = row_max == -INFINITY ? 0 : expf(row_max - new_max);
  row_sum = row_sum * factor + simd::reduce_sum(sum);
  row_max = new_max;
  return factor;
}

// out = or += row * by
template <class T>
void scale_row(T* out, const float* row, float by, int n, bool accumulate = false) {
  simd::for_each(n, [&](int j, auto lanes) {
    const vf x = lanes.load(row + j) * by;
    lanes.store(out + j, accumulate ? lanes.load(out + j) + x : x);
  });
}

template <class T>
void pack_head(const ForwardTiles& mine, Rows<const T> k, Rows<const T> v) {
  for (int tile = 0; tile < mine.keys.count; ++tile) {
    const int key = mine.keys.begin(tile), keys = mine.keys.rows(tile);
    pack_columns(mine.k + ptrdiff_t(key) * lanes_of<T>(mine.D), k[key], k.stride, mine.D, keys);
    pack_rows(mine.v + ptrdiff_t(lanes_of<T>(key)) * mine.columns, v[key], v.stride, keys, mine.D);
  }
}

template <class T>
void forward_queries(const AttentionForward& op, const ForwardTiles& mine, int b, int h,
                     int query_tile) {
  const auto q = rows_of<T>(op.qkv, op, 3, 0, b, h);
  const auto out = rows_of<T>(op.out, op, 1, 0, b, h);
  const int D = lanes_of<T>(op.shape.D);
  const int query = mine.queries.begin(query_tile), queries = mine.queries.rows(query_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));
  for (int i = 0; i < queries; ++i) mine.row_max[i] = -INFINITY, mine.row_sum[i] = 0;

  for (int tile = 0; tile < mine.keys.count; ++tile) {
    const int key = mine.keys.begin(tile), keys = mine.keys.rows(tile);
    multiply<T>(mine.s, mine.keys.size, factor(q, query), mine.k + ptrdiff_t(key) * D, queries,
                keys, D, false);
    for (int i = 0; i < queries; ++i) {
      float* s = mine.s + ptrdiff_t(i) * mine.keys.size;
      float* o = mine.o + ptrdiff_t(i) * mine.columns;
      const float* keep = op.drop > 0 ? draw(op, mine.random, b, h, query + i, key, keys) : nullptr;
      const float rescale = softmax_row<T>(s, keep, keys, scale, mine.row_max[i], mine.row_sum[i]);
      if (tile > 0) scale_row(o, o, rescale, op.shape.D);
    }
    multiply<T>(mine.o, mine.columns, {mine.s, mine.keys.size, 1},
                mine.v + ptrdiff_t(lanes_of<T>(key)) * mine.columns, queries, op.shape.D,
                lanes_of<T>(keys), tile > 0);
  }
  for (int i = 0; i < queries; ++i) {
    scale_row(out[query + i], mine.o + ptrdiff_t(i) * mine.columns, 1 / mine.row_sum[i],
              op.shape.D);
    op.lse[(ptrdiff_t(b) * op.shape.H + h) * op.shape.Q + query + i] =
        mine.row_max[i] + logf(mine.row_sum[i]);
  }
}

// ---- backward -----------------------------------------------------------------------------------
template <class T>
float dot(const T* a, const T* b, int n) {
  vf sum{};
  simd::for_each(
      n, [&](int j, auto lanes) { sum = simd::fma(lanes.load(a + j), lanes.load(b + j), sum); });
  return simd::reduce_sum(sum);
}

// A row: p holds S and becomes P * keep, ds holds dP and becomes dS. keep is null without dropout.
void softmax_backward_row(float* p, float* ds, const float* keep, int n, float scale, float lse,
                          float delta) {
  simd::for_each(n, [&](int j, auto lanes) {
    const vf e = simd::exp(simd::fma(lanes.load(p + j), simd::set(scale), simd::set(-lse)));
    const vf k = keep ? lanes.load(keep + j) : simd::set(1);
    lanes.store(p + j, e * k);
    lanes.store(ds + j, e * (lanes.load(ds + j) * k - delta));
  });
}

// Rounds P and dS, and pairs up queries for products that sum over queries: the pairs of P replace
// every other row of P, the pairs of dS are in ds_pairs. dS is also paired along keys, in place.
template <class T>
void make_pairs(const BackwardTiles& mine, int queries, int keys) {
  const ptrdiff_t row = mine.keys.size;
  for (int i = 0; i < queries; i += 2) {
    float *p = mine.p + i * row, *ds = mine.ds + i * row, *ds_pairs = mine.ds_pairs + i / 2 * row;
    T *low = reinterpret_cast<T*>(ds), *high = reinterpret_cast<T*>(ds + row);
    const bool both = i + 1 < queries;
    simd::for_each(keys, [&](int j, auto lanes) {
      const auto rounded = [&](const float* x) { return simd::rounded(T{}, lanes.load(x + j)); };
      const vf ds_low = rounded(ds), ds_high = both ? rounded(ds + row) : vf{};
      lanes.store(p + j, simd::pairs(rounded(p), both ? rounded(p + row) : vf{}));
      lanes.store(ds_pairs + j, simd::pairs(ds_low, ds_high));
      lanes.store(low + j, ds_low);
      if (both) lanes.store(high + j, ds_high);
    });
    end_row(low, keys);
    if (both) end_row(high, keys);
  }
}

// Computes P and dS of a tile, and adds their contribution to dV, dK and dQ.
template <class T>
void backward_tile(const AttentionBackward& op, const BackwardTiles& mine, int b, int h,
                   int query_tile, int key_tile) {
  constexpr bool pairs = per_lane<T> == 2;
  const auto q = rows_of<T>(op.qkv, op, 3, 0, b, h);
  const auto out = rows_of<T>(op.out, op, 1, 0, b, h);
  const auto dout = rows_of<T>(op.dout, op, 1, 0, b, h);
  const auto dq = rows_of<T>(op.dqkv, op, 3, 0, b, h);
  const int D = lanes_of<T>(op.shape.D);
  const int query = mine.queries.begin(query_tile), queries = mine.queries.rows(query_tile);
  const int key = mine.keys.begin(key_tile), keys = mine.keys.rows(key_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));

  multiply<T>(mine.p, mine.keys.size, factor(q, query), mine.k_t, queries, keys, D, false);
  multiply<T>(mine.ds, mine.keys.size, factor(dout, query), mine.v_t, queries, keys, D, false);
  for (int i = 0; i < queries; ++i) {
    const float* keep = op.drop > 0 ? draw(op, mine.random, b, h, query + i, key, keys) : nullptr;
    softmax_backward_row(mine.p + ptrdiff_t(i) * mine.keys.size,
                         mine.ds + ptrdiff_t(i) * mine.keys.size, keep, keys, scale,
                         op.lse[(ptrdiff_t(b) * op.shape.H + h) * op.shape.Q + query + i],
                         dot(dout[query + i], out[query + i], op.shape.D));
  }
  if constexpr (pairs) make_pairs<T>(mine, queries, keys);
  pack_rows(mine.dout, dout[query], dout.stride, queries, op.shape.D);
  multiply<T>(mine.dv, mine.columns, {mine.p, 1, ptrdiff_t{per_lane<T>} * mine.keys.size},
              mine.dout, keys, op.shape.D, lanes_of<T>(queries), query_tile > 0);
  pack_rows(mine.q, q[query], q.stride, queries, op.shape.D);
  multiply<T>(mine.dk, mine.columns, {pairs ? mine.ds_pairs : mine.ds, 1, mine.keys.size}, mine.q,
              keys, op.shape.D, lanes_of<T>(queries), query_tile > 0);
  // A bf16 dQ would be rounded after each key tile, so its sums stay in fp32 until the last one.
  float* sum = mine.dq + (pairs ? ptrdiff_t(query) * mine.columns : 0);
  multiply<T>(sum, mine.columns, {mine.ds, mine.keys.size, 1}, mine.k, queries, op.shape.D,
              lanes_of<T>(keys), pairs && key_tile > 0);
  if (pairs && key_tile + 1 < mine.keys.count) return;
  for (int i = 0; i < queries; ++i)
    scale_row(dq[query + i], sum + ptrdiff_t(i) * mine.columns, scale, op.shape.D,
              !pairs && key_tile > 0);
}

template <class T>
void backward_keys(const AttentionBackward& op, const BackwardTiles& mine, int b, int h,
                   int key_tile) {
  const auto k = rows_of<T>(op.qkv, op, 3, 1, b, h);
  const auto v = rows_of<T>(op.qkv, op, 3, 2, b, h);
  const auto dk = rows_of<T>(op.dqkv, op, 3, 1, b, h);
  const auto dv = rows_of<T>(op.dqkv, op, 3, 2, b, h);
  const int key = mine.keys.begin(key_tile), keys = mine.keys.rows(key_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));
  pack_columns(mine.k_t, k[key], k.stride, op.shape.D, keys);
  pack_columns(mine.v_t, v[key], v.stride, op.shape.D, keys);
  pack_rows(mine.k, k[key], k.stride, keys, op.shape.D);
  for (int tile = 0; tile < mine.queries.count; ++tile)
    backward_tile<T>(op, mine, b, h, tile, key_tile);
  for (int j = 0; j < keys; ++j) {
    scale_row(dk[key + j], mine.dk + ptrdiff_t(j) * mine.columns, scale, op.shape.D);
    scale_row(dv[key + j], mine.dv + ptrdiff_t(j) * mine.columns, 1, op.shape.D);
  }
}

}  // namespace

template <>
size_t CpuKernels::workspace(const AttentionForward& op) {
  check(op, "AttentionForward");
  return workspace_of_threads<ForwardTiles>(op);
}

template <>
void CpuKernels::run(const AttentionForward& op) {
  check(op, "AttentionForward");
  const int tiles = Tiles(op, nullptr).queries.count;
  with_type(op.dtype, [&]<class T>(T) {
    for_each_unit<ForwardTiles>(
        op, op.shape.B * op.shape.H * tiles, [&](ForwardTiles& mine, int unit) {
          const int head = unit / tiles, b = head / op.shape.H, h = head % op.shape.H;
          if (mine.packed_head != head)
            pack_head(mine, rows_of<T>(op.qkv, op, 3, 1, b, h), rows_of<T>(op.qkv, op, 3, 2, b, h));
          mine.packed_head = head;
          forward_queries<T>(op, mine, b, h, unit % tiles);
        });
  });
}

template <>
size_t CpuKernels::workspace(const AttentionBackward& op) {
  check(op, "AttentionBackward");
  return workspace_of_threads<BackwardTiles>(op);
}

template <>
void CpuKernels::run(const AttentionBackward& op) {
  check(op, "AttentionBackward");
  with_type(op.dtype, [&]<class T>(T) {
    for_each_unit<BackwardTiles>(op, op.shape.B * op.shape.H,
                                 [&](const BackwardTiles& mine, int head) {
                                   const int b = head / op.shape.H, h = head % op.shape.H;
                                   for (int tile = 0; tile < mine.keys.count; ++tile)
                                     backward_keys<T>(op, mine, b, h, tile);
                                   const auto dq = rows_of<T>(op.dqkv, op, 3, 0, b, h);
                                   for (int query = op.shape.Q; query < op.shape.N; ++query)
                                     __builtin_memset(dq[query], 0, size_t(op.shape.D) * sizeof(T));
                                 });
  });
}

}  // namespace bv::BAREVISION_ISA
