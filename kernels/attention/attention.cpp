// attention: for each image and head, over the packed projections qkv [B, N, 3, H, D],
//   S = Q K^T / sqrt(D),  P = softmax(S),  out = (P * mask / (1 - drop)) V
// and backward, with dP' = dout V^T * mask / (1 - drop) and delta = rowsum(dout * out):
//   dV = (P * mask / (1 - drop))^T dout,  dS = P * (dP' - delta)
//   dQ = dS K / sqrt(D),  dK = dS^T Q / sqrt(D)                          all =
// Saved for backward: out and lse = log sum exp of each row of S, from which P comes again.
//
// Flash-style (Dao et al. 2022): S exists as a tile of at most 48 queries x 256 keys. Forward goes
// over the keys with a running maximum and sum (a second tile of keys rescales what the first
// gave); backward has the keys outside, whose dK and dV gather in a tile while the queries pass,
// and adds to dQ in memory. The factor b of each product (small_product.h) is packed first, the
// factor a is read where it lies; 1 / sqrt(D) enters with the exponential and where gradients are
// written. A thread takes whole heads (in forward: runs of query tiles where heads are few) and has
// its tiles in the workspace. Every row's arithmetic is the same whoever computes it. 4 B H N^2 D
// flops forward, 10 backward, on 4 (8) B N H D floats: limited by arithmetic.
#include <math.h>
#include <omp.h>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/small_product.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::vf;
using simd::width;

template <class Op>
void check(const Op& op, const char* name) {
  require(op.shape.D > 0 && op.shape.D <= 128 && op.shape.D % 8 == 0, name,
          "D: must be a multiple of 8 up to 128");
}

// ------------------------------------------------------------------------------------------------
// tiles and their memory

constexpr int max_queries = 48, max_keys = 256;

constexpr int round_div(int n, int by) { return (n + by - 1) / by; }

// Sizes of an operation's tiles. The last tile of either kind may be smaller.
struct Tiles {
  int N, D;
  int queries, keys;           // in a tile
  int query_count, key_count;  // tiles
  int columns;                 // of a tile of rows of D elements

  template <class Op>
  explicit Tiles(const Op& op) : N(op.shape.N), D(op.shape.D) {
    queries = round_up(round_div(N, round_div(N, max_queries)), row_block);
    keys = round_up(round_div(N, round_div(N, max_keys)), width);
    query_count = round_div(N, queries);
    key_count = round_div(N, keys);
    columns = round_up(D, width);
  }
  int queries_in(int tile) const { return tile + 1 < query_count ? queries : N - tile * queries; }
  int keys_in(int tile) const { return tile + 1 < key_count ? keys : N - tile * keys; }
};

// Hands out pieces of a thread's part of the workspace; with null it only counts.
struct Scratch {
  float* base;
  size_t used = 0;

  float* take(size_t floats) {
    float* at = base ? base + used : nullptr;
    used += (floats + 15) / 16 * 16;
    return at;
  }
};

struct ForwardTiles {
  float *k, *v;      // K^T and V of the whole head, packed by tiles of keys
  float* s;          // [queries, keys]  S, then P
  float* o;          // [queries, columns]  P V, not yet divided by the sum
  float *max, *sum;  // [queries]  of the keys so far; max with 1 / sqrt(D)
  float* random;

  ForwardTiles(Scratch& scratch, const Tiles& t)
      : k(scratch.take(size_t(t.key_count) * t.keys * t.D)),
        v(scratch.take(size_t(t.key_count) * t.keys * t.columns)),
        s(scratch.take(size_t(t.queries) * t.keys)),
        o(scratch.take(size_t(t.queries) * t.columns)),
        max(scratch.take(t.queries)),
        sum(scratch.take(t.queries)),
        random(scratch.take(t.keys + 8 * width)) {}
};

struct BackwardTiles {
  float *k_t, *v_t, *k;  // of a tile of keys, packed: K^T, V^T, K
  float *q, *dout;       // of a tile of queries, packed
  float *p, *ds;         // [queries, keys]  S, then P * mask / (1 - drop); dP, then dS
  float *dk, *dv;        // [keys, columns]
  float* dq;             // [queries, columns]
  float* random;

  BackwardTiles(Scratch& scratch, const Tiles& t)
      : k_t(scratch.take(size_t(t.keys) * t.D)),
        v_t(scratch.take(size_t(t.keys) * t.D)),
        k(scratch.take(size_t(t.keys) * t.columns)),
        q(scratch.take(size_t(t.queries) * t.columns)),
        dout(scratch.take(size_t(t.queries) * t.columns)),
        p(scratch.take(size_t(t.queries) * t.keys)),
        ds(scratch.take(size_t(t.queries) * t.keys)),
        dk(scratch.take(size_t(t.keys) * t.columns)),
        dv(scratch.take(size_t(t.keys) * t.columns)),
        dq(scratch.take(size_t(t.queries) * t.columns)),
        random(scratch.take(t.keys + 8 * width)) {}
};

template <class ThreadTiles>
size_t thread_floats(const Tiles& tiles) {
  Scratch scratch{nullptr};
  ThreadTiles count(scratch, tiles);
  return scratch.used;
}

// A head's rows in [B, N, parts, H, D]: row n at data + n * stride.
template <class T>
struct Rows {
  T* data;
  ptrdiff_t stride;

  T* operator[](int n) const { return data + n * stride; }
};
template <class T, class Op>
Rows<T> rows_of(T* data, const Op& op, int parts, int part, int b, int h) {
  const ptrdiff_t stride = ptrdiff_t(parts) * op.shape.H * op.shape.D;
  return {data + b * (op.shape.N * stride) + (ptrdiff_t(part) * op.shape.H + h) * op.shape.D,
          stride};
}

// ------------------------------------------------------------------------------------------------
// dropout

struct Drop {
  float drop, scale;  // scale = 1 / (1 - drop)
  uint64_t seed;
  uint32_t position, epoch, layer;

  template <class Op>
  Drop(const Op& op, int b) : drop(op.drop), scale(op.drop < 1 ? 1 / (1 - op.drop) : 0) {
    if (drop == 0) return;
    seed = op.params->seed;
    position = op.params->position + static_cast<uint32_t>(b);
    epoch = op.params->epoch;
    layer = op.layer;
  }
};

// Elements first .. first + n of a head's decisions: 1 / (1 - drop) where kept, else 0. They start
// up to 3 places behind `random`, since four share a counter.
const float* draw(const Drop& d, float* random, uint64_t first, int n) {
  const int skip = static_cast<int>(first % 4);
  for (int at = 0; at < skip + n; at += 4 * width) {
    simd::vu words[4];
    philox_words(d.seed, static_cast<uint32_t>((first + static_cast<uint64_t>(at)) / 4), d.position,
                 d.epoch, d.layer, words);
    for (int v = 0; v < 4; ++v)
      simd::store(random + at + v * width,
                  simd::select(uniform(words[v]) >= d.drop, simd::set(d.scale), vf{}));
  }
  return random + skip;
}

template <class Op>
uint64_t first_decision(const Op& op, int h, int query, int key) {
  return (static_cast<uint64_t>(h) * op.shape.N + query) * op.shape.N + key;
}

// ------------------------------------------------------------------------------------------------
// forward

// A row of S becomes exp(S scale - max); max and sum take it in. Returns what earlier terms of this
// row have to be multiplied with.
float softmax_row(float* s, int n, float scale, float& max, float& sum) {
  vf most = simd::set(-INFINITY), total{};
  simd::for_each(n, [&](int j, auto lanes) {
    most = simd::max(most, lanes.keep(lanes.load(s + j), simd::set(-INFINITY)));
  });
  const float row_max = simd::reduce_max(most) * scale, new_max = row_max > max ? row_max : max;
  simd::for_each(n, [&](int j, auto lanes) {
    const vf p = simd::exp(simd::fma(lanes.load(s + j), simd::set(scale), simd::set(-new_max)));
    total += lanes.keep(p);
    lanes.store(s + j, p);
  });
  const float factor = max == -INFINITY ? 0 : expf(max - new_max);
  sum = sum * factor + simd::reduce_sum(total);
  max = new_max;
  return factor;
}

void multiply_row(float* row, const float* by, int n) {
  simd::for_each(n, [&](int j, auto lanes) {
    lanes.store(row + j, lanes.load(row + j) * lanes.load(by + j));
  });
}

void scale_row(float* out, const float* row, float by, int n) {
  simd::for_each(n, [&](int j, auto lanes) { lanes.store(out + j, lanes.load(row + j) * by); });
}

void pack_head(const ForwardTiles& mine, const Tiles& tiles, Rows<const float> k,
               Rows<const float> v) {
  for (int tile = 0; tile < tiles.key_count; ++tile) {
    const int key = tile * tiles.keys, keys = tiles.keys_in(tile);
    pack_columns(mine.k + ptrdiff_t(key) * tiles.D, k[key], k.stride, tiles.D, keys);
    pack_rows(mine.v + ptrdiff_t(key) * tiles.columns, v[key], v.stride, keys, tiles.D);
  }
}

void forward_queries(const AttentionForward& op, const ForwardTiles& mine, const Tiles& tiles,
                     int b, int h, int query_tile) {
  const auto q = rows_of(static_cast<const float*>(op.qkv), op, 3, 0, b, h);
  const auto out = rows_of(static_cast<float*>(op.out), op, 1, 0, b, h);
  const int query = query_tile * tiles.queries, queries = tiles.queries_in(query_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));
  const Drop drop(op, b);
  for (int i = 0; i < queries; ++i) mine.max[i] = -INFINITY, mine.sum[i] = 0;

  for (int tile = 0; tile < tiles.key_count; ++tile) {
    const int key = tile * tiles.keys, keys = tiles.keys_in(tile);
    multiply(mine.s, tiles.keys, {q[query], q.stride, 1}, mine.k + ptrdiff_t(key) * op.shape.D,
             queries, keys, op.shape.D, false);
    for (int i = 0; i < queries; ++i) {
      float* s = mine.s + ptrdiff_t(i) * tiles.keys;
      float* o = mine.o + ptrdiff_t(i) * tiles.columns;
      const float factor = softmax_row(s, keys, scale, mine.max[i], mine.sum[i]);
      if (tile > 0) scale_row(o, o, factor, op.shape.D);
      if (op.drop > 0)
        multiply_row(s, draw(drop, mine.random, first_decision(op, h, query + i, key), keys), keys);
    }
    multiply(mine.o, tiles.columns, {mine.s, tiles.keys, 1},
             mine.v + ptrdiff_t(key) * tiles.columns, queries, op.shape.D, keys, tile > 0);
  }
  for (int i = 0; i < queries; ++i) {
    scale_row(out[query + i], mine.o + ptrdiff_t(i) * tiles.columns, 1 / mine.sum[i], op.shape.D);
    op.lse[(ptrdiff_t(b) * op.shape.H + h) * op.shape.N + query + i] =
        mine.max[i] + logf(mine.sum[i]);
  }
}

// ------------------------------------------------------------------------------------------------
// backward

float dot(const float* a, const float* b, int n) {
  vf sum{};
  simd::for_each(
      n, [&](int j, auto lanes) { sum = simd::fma(lanes.load(a + j), lanes.load(b + j), sum); });
  return simd::reduce_sum(sum);
}

// p holds a row of S, ds one of dP; they become P * keep and dS. keep: null without dropout.
void softmax_backward_row(float* p, float* ds, const float* keep, int n, float scale, float lse,
                          float delta) {
  simd::for_each(n, [&](int j, auto lanes) {
    const vf e = simd::exp(simd::fma(lanes.load(p + j), simd::set(scale), simd::set(-lse)));
    const vf k = keep ? lanes.load(keep + j) : simd::set(1);
    lanes.store(p + j, e * k);
    lanes.store(ds + j, e * (lanes.load(ds + j) * k - delta));
  });
}

// dQ of a tile of queries, of which this is tile `key_tile` of the keys.
void write_dq(const BackwardTiles& mine, const Tiles& tiles, Rows<float> dq, int query, int queries,
              float scale, bool accumulate) {
  for (int i = 0; i < queries; ++i) {
    float* out = dq[query + i];
    const float* row = mine.dq + ptrdiff_t(i) * tiles.columns;
    simd::for_each(tiles.D, [&](int j, auto lanes) {
      const vf add = lanes.load(row + j) * scale;
      lanes.store(out + j, accumulate ? lanes.load(out + j) + add : add);
    });
  }
}

// P and dS of a tile, and what they give to dV, dK and dQ.
void backward_tile(const AttentionBackward& op, const BackwardTiles& mine, const Tiles& tiles,
                   int b, int h, int query_tile, int key_tile) {
  const auto q = rows_of(static_cast<const float*>(op.qkv), op, 3, 0, b, h);
  const auto out = rows_of(static_cast<const float*>(op.out), op, 1, 0, b, h);
  const auto dout = rows_of(static_cast<const float*>(op.dout), op, 1, 0, b, h);
  const auto dq = rows_of(static_cast<float*>(op.dqkv), op, 3, 0, b, h);
  const int query = query_tile * tiles.queries, queries = tiles.queries_in(query_tile);
  const int key = key_tile * tiles.keys, keys = tiles.keys_in(key_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));
  const Drop drop(op, b);

  multiply(mine.p, tiles.keys, {q[query], q.stride, 1}, mine.k_t, queries, keys, op.shape.D, false);
  multiply(mine.ds, tiles.keys, {dout[query], dout.stride, 1}, mine.v_t, queries, keys, op.shape.D,
           false);
  for (int i = 0; i < queries; ++i) {
    const float* keep = op.drop > 0
                            ? draw(drop, mine.random, first_decision(op, h, query + i, key), keys)
                            : nullptr;
    softmax_backward_row(mine.p + ptrdiff_t(i) * tiles.keys, mine.ds + ptrdiff_t(i) * tiles.keys,
                         keep, keys, scale,
                         op.lse[(ptrdiff_t(b) * op.shape.H + h) * op.shape.N + query + i],
                         dot(dout[query + i], out[query + i], op.shape.D));
  }
  pack_rows(mine.dout, dout[query], dout.stride, queries, op.shape.D);
  multiply(mine.dv, tiles.columns, {mine.p, 1, tiles.keys}, mine.dout, keys, op.shape.D, queries,
           query_tile > 0);
  pack_rows(mine.q, q[query], q.stride, queries, op.shape.D);
  multiply(mine.dk, tiles.columns, {mine.ds, 1, tiles.keys}, mine.q, keys, op.shape.D, queries,
           query_tile > 0);
  multiply(mine.dq, tiles.columns, {mine.ds, tiles.keys, 1}, mine.k, queries, op.shape.D, keys,
           false);
  write_dq(mine, tiles, dq, query, queries, scale, key_tile > 0);
}

void backward_keys(const AttentionBackward& op, const BackwardTiles& mine, const Tiles& tiles,
                   int b, int h, int key_tile) {
  const auto k = rows_of(static_cast<const float*>(op.qkv), op, 3, 1, b, h);
  const auto v = rows_of(static_cast<const float*>(op.qkv), op, 3, 2, b, h);
  const auto dk = rows_of(static_cast<float*>(op.dqkv), op, 3, 1, b, h);
  const auto dv = rows_of(static_cast<float*>(op.dqkv), op, 3, 2, b, h);
  const int key = key_tile * tiles.keys, keys = tiles.keys_in(key_tile);
  const float scale = 1 / sqrtf(static_cast<float>(op.shape.D));
  pack_columns(mine.k_t, k[key], k.stride, op.shape.D, keys);
  pack_columns(mine.v_t, v[key], v.stride, op.shape.D, keys);
  pack_rows(mine.k, k[key], k.stride, keys, op.shape.D);
  for (int tile = 0; tile < tiles.query_count; ++tile)
    backward_tile(op, mine, tiles, b, h, tile, key_tile);
  for (int j = 0; j < keys; ++j) {
    scale_row(dk[key + j], mine.dk + ptrdiff_t(j) * tiles.columns, scale, op.shape.D);
    scale_row(dv[key + j], mine.dv + ptrdiff_t(j) * tiles.columns, 1, op.shape.D);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------------------

template <>
size_t CpuKernels::workspace(const AttentionForward& op) {
  check(op, "AttentionForward");
  return thread_floats<ForwardTiles>(Tiles(op)) * size_t(omp_get_max_threads()) * sizeof(float);
}

template <>
void CpuKernels::run(const AttentionForward& op) {
  check(op, "AttentionForward");
  const Tiles tiles(op);
  const size_t floats = thread_floats<ForwardTiles>(tiles);
  const int heads = op.shape.B * op.shape.H;
  // Enough pieces that the threads end at about the same time.
  const int pieces = heads >= 8 * omp_get_max_threads() ? 1 : tiles.query_count;
#pragma omp parallel
  {
    Scratch scratch{static_cast<float*>(op.workspace) + floats * size_t(omp_get_thread_num())};
    const ForwardTiles mine(scratch, tiles);
    int packed = -1;
#pragma omp for schedule(static)
    for (int work = 0; work < heads * pieces; ++work) {
      const int head = work / pieces, piece = work % pieces, b = head / op.shape.H,
                h = head % op.shape.H;
      if (packed != head)
        pack_head(mine, tiles, rows_of(static_cast<const float*>(op.qkv), op, 3, 1, b, h),
                  rows_of(static_cast<const float*>(op.qkv), op, 3, 2, b, h));
      packed = head;
      for (int tile = tiles.query_count * piece / pieces;
           tile < tiles.query_count * (piece + 1) / pieces; ++tile)
        forward_queries(op, mine, tiles, b, h, tile);
    }
  }
}

template <>
size_t CpuKernels::workspace(const AttentionBackward& op) {
  check(op, "AttentionBackward");
  return thread_floats<BackwardTiles>(Tiles(op)) * size_t(omp_get_max_threads()) * sizeof(float);
}

template <>
void CpuKernels::run(const AttentionBackward& op) {
  check(op, "AttentionBackward");
  const Tiles tiles(op);
  const size_t floats = thread_floats<BackwardTiles>(tiles);
#pragma omp parallel
  {
    Scratch scratch{static_cast<float*>(op.workspace) + floats * size_t(omp_get_thread_num())};
    const BackwardTiles mine(scratch, tiles);
#pragma omp for schedule(static)
    for (int head = 0; head < op.shape.B * op.shape.H; ++head)
      for (int tile = 0; tile < tiles.key_count; ++tile)
        backward_keys(op, mine, tiles, head / op.shape.H, head % op.shape.H, tile);
  }
}

}  // namespace bv::BAREVISION_ISA
