// Attention in fp32 with plain FMA, for training in fp32. The 16-bit kernels are attention.cu and
// attention_backward.cu.
//
// A block keeps a tile of rows in shared memory and loops over the columns of the head's scores in
// tiles of 32 (16 if D = 128). Backward recomputes P from lse. Sums have a fixed order, no atomics:
//   forward            rows are queries, loop over keys; the online softmax rescales earlier sums
//   backward, keys     rows are keys, loop over queries:   delta, dK, dV
//   backward, queries  rows are queries, loop over keys:   delta, dQ
// so S and dP are computed twice: 14 B H N^2 D flops instead of 10.
//
//   grid   (row tiles, H, B)
//   warp   4 m rows of the block's tile, all columns of the loop's tile
//   lane   one of 4 x 8: rows 4 apart and columns 8 apart, m x 4 scores (m x 2 if D = 128). The
//          warp then writes P or dS to shared memory as an operand of the second product, of which
//          a lane computes m x D/8 outputs
// Rows are D + 4 floats apart, so that 16-byte reads of neighbouring rows hit different banks. The
// four lanes that need the same dropout decisions share the Philox calls.
// Limited by FMAs, next by shared memory reads. Registers and blocks: tests/kernels/resources.txt.
#include "kernels/attention/attention.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int pad = 4;  // floats after each row in shared memory

template <int D>
constexpr int columns = D == 128 ? 16 : 32;  // rows of the loop's tile, columns of the scores

// rows, threads: per block. m: rows per lane. blocks: per SM, as registers allow without spills.
template <int D>
struct Forward {
  static constexpr int m = 8, rows = 64, threads = rows / (4 * m) * warp_size;
  static constexpr int blocks = D == 32 ? 6 : 4;
};
template <int D>
struct Backward {
  static constexpr int m = 4, rows = D == 128 ? 32 : 64, threads = rows / (4 * m) * warp_size;
  static constexpr int blocks = D == 128 ? 4 : 3;
};

// A lane's first row and column. The four lanes with equal lane / 4 share rows if `by_rows`, else
// columns.
struct Place {
  int row, column;

  __device__ explicit Place(bool by_rows) {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    row = by_rows ? lane / 8 : lane % 4;
    column = by_rows ? lane % 8 : lane / 4;
  }
};

// ---- tiles --------------------------------------------------------------------------------------
// Loads a head's rows from `first` on into a tile, with zeros from `end` on. Called by all threads.
template <int D, int rows, int threads>
__device__ void load_rows(float (*to)[D + pad], Rows<const float> from, int first, int end) {
  constexpr int chunks = D / 4, step = threads / chunks;
  const int chunk = static_cast<int>(threadIdx.x) % chunks * 4;
#pragma unroll 2
  for (int r = static_cast<int>(threadIdx.x) / chunks; r < rows; r += step) {
    Pack<float> x{};
    if (first + r < end) x = load_pack(from[first + r] + chunk);
    store_pack(&to[r][chunk], x);
  }
}

// Loads rows of dout likewise, and also computes delta[row] = sum of dout * out.
template <int D, int rows, int threads>
__device__ void load_dout(float (*to)[D + pad], float* delta, Rows<const float> dout,
                          Rows<const float> out, int first, int end) {
  constexpr int chunks = D / 4, step = threads / chunks;
  static_assert(rows % step == 0, "warp_sum needs whole warps");
  const int chunk = static_cast<int>(threadIdx.x) % chunks * 4;
#pragma unroll 2
  for (int r = static_cast<int>(threadIdx.x) / chunks; r < rows; r += step) {
    Pack<float> x{}, y{};
    if (first + r < end) {
      x = load_pack(dout[first + r] + chunk);
      y = load_pack(out[first + r] + chunk);
    }
    store_pack(&to[r][chunk], x);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = fmaf(x.at[i], y.at[i], sum);
    sum = warp_sum<chunks>(sum);
    if (chunk == 0) delta[r] = sum;
  }
}

// acc[i][j] = a[4 i] . b[8 j]
template <int D, int m, int n>
__device__ void dot_rows(float (&acc)[m][n], const float (*a)[D + pad], const float (*b)[D + pad]) {
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int j = 0; j < n; ++j) acc[i][j] = 0;
#pragma unroll 1
  for (int d = 0; d < D; d += 4) {
    Pack<float> y[n];
#pragma unroll
    for (int j = 0; j < n; ++j) y[j] = load_pack(&b[8 * j][d]);
#pragma unroll
    for (int i = 0; i < m; ++i) {
      const Pack<float> x = load_pack(&a[4 * i][d]);
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < n; ++j) acc[i][j] = fmaf(x.at[k], y[j].at[k], acc[i][j]);
    }
  }
}

// acc[i] += sum over c < count of w[4 i][c] * b[c], in this lane's columns 32 k + column to 32 k +
// column + 3. Reads w and b up to the next multiple of 4.
template <int D, int m, int w_pitch>
__device__ void add_product(float (&acc)[m][D / 8], const float (*w)[w_pitch],
                            const float (*b)[D + pad], int column, int count) {
  for (int c = 0; c < count; c += 4) {
    Pack<float> x[m];
#pragma unroll
    for (int i = 0; i < m; ++i) x[i] = load_pack(&w[4 * i][c]);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int part = 0; part < D / 32; ++part) {
        const Pack<float> y = load_pack(&b[c + k][32 * part + column]);
#pragma unroll
        for (int i = 0; i < m; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            acc[i][4 * part + j] = fmaf(x[i].at[k], y.at[j], acc[i][4 * part + j]);
      }
  }
}

// Writes this lane's scores to shared memory.
template <int pitch, int m, int n>
__device__ void store_scores(float* to, const float (&x)[m][n]) {
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int j = 0; j < n; ++j) to[4 * i * pitch + 8 * j] = x[i][j];
}

// Writes rows first, first + 4, ... of a result.
template <int D, int m>
__device__ void store_rows(Rows<float> to, const float (&acc)[m][D / 8], float scale, int first,
                           int column, int end) {
#pragma unroll
  for (int i = 0; i < m; ++i)
    if (first + 4 * i < end) {
#pragma unroll
      for (int part = 0; part < D / 32; ++part) {
        Pack<float> x;
#pragma unroll
        for (int j = 0; j < 4; ++j) x.at[j] = acc[i][4 * part + j] * scale;
        store_pack(to[first + 4 * i] + 32 * part + column, x);
      }
    }
}

// ---- forward ------------------------------------------------------------------------------------
template <int D>
struct ForwardShared {
  float q[Forward<D>::rows][D + pad];
  union {
    float k[columns<D>][D + pad];
    float p[Forward<D>::rows][columns<D> + pad];  // once the scores are computed
  };
  float v[columns<D>][D + pad];
};

// Online softmax: p holds S and becomes exp(S scale - row_max). Updates row_max, row_sum and acc.
// Columns from `end` on don't exist; `column` is this lane's first.
template <int m, int n, int columns_out>
__device__ void softmax(float (&p)[m][n], float (&row_max)[m], float (&row_sum)[m],
                        float (&acc)[m][columns_out], float scale, int column, int end) {
#pragma unroll
  for (int i = 0; i < m; ++i) {
    float max = row_max[i];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if (column + 8 * j >= end) p[i][j] = -INFINITY;
      max = fmaxf(max, p[i][j] * scale);
    }
    max = warp_max<8>(max);
    const float factor = expf(row_max[i] - max);
    row_max[i] = max;
    row_sum[i] *= factor;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      p[i][j] = expf(fmaf(p[i][j], scale, -max));
      row_sum[i] += p[i][j];
    }
#pragma unroll
    for (int j = 0; j < columns_out; ++j) acc[i][j] *= factor;
  }
}

// Applies dropout to this lane's rows of P in shared memory, which takes fewer registers.
template <int D>
__device__ void drop_scores(float (*p)[columns<D> + pad], const AttentionForward& op, int b, int h,
                            int query, int key, int column) {
  const int N = op.shape.N;
  const KeepDecisions keep(op, b);
  const float keep_factor = keep_scale(op.drop);
#pragma unroll 1
  for (int below = 0; below < 4 * Forward<D>::m; below += 16) {
    uint32_t bits[4];
    keep_bits<4, columns<D>>(bits, keep, (uint64_t(h) * N + query + below) * N + key,
                             uint64_t{4} * N);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int c = column; c < columns<D>; c += 8)
        p[below + 4 * i][c] *= bits[i] >> c & 1 ? keep_factor : 0;
  }
}

template <int D>
__global__ void __launch_bounds__(Forward<D>::threads, Forward<D>::blocks)
    attention_fp32_forward(AttentionForward op) {
  await_kernel_ahead();
  constexpr int m = Forward<D>::m, n = columns<D> / 8, threads = Forward<D>::threads;
  auto& tile = shared<ForwardShared<D>>();
  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int N = op.shape.N, Q = op.shape.Q;
  const float* qkv = static_cast<const float*>(op.qkv);
  const Rows<const float> k = rows_of(qkv, op, 3, 1, b, h), v = rows_of(qkv, op, 3, 2, b, h);
  const int first = static_cast<int>(blockIdx.x) * Forward<D>::rows;  // of the block's queries
  const Place place(true);
  const int row = static_cast<int>(threadIdx.x) / warp_size * 4 * m + place.row;
  const int query = first + row;
  const bool active = query - place.row < Q;  // the whole warp
  const float scale = 1 / sqrtf(static_cast<float>(D));

  float acc[m][D / 8], row_max[m], row_sum[m];
#pragma unroll
  for (int i = 0; i < m; ++i) {
    row_max[i] = -INFINITY, row_sum[i] = 0;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) acc[i][j] = 0;
  }
  load_rows<D, Forward<D>::rows, threads>(tile.q, rows_of(qkv, op, 3, 0, b, h), first, Q);
  for (int key = 0; key < N; key += columns<D>) {
    __syncthreads();  // until all threads are done with the previous keys
    load_rows<D, columns<D>, threads>(tile.k, k, key, N);
    load_rows<D, columns<D>, threads>(tile.v, v, key, N);
    __syncthreads();
    float p[m][n];
    if (active) dot_rows<D>(p, &tile.q[row], &tile.k[place.column]);
    __syncthreads();  // P overwrites K
    if (!active) continue;
    softmax(p, row_max, row_sum, acc, scale, key + place.column, N);
    store_scores<columns<D> + pad>(&tile.p[row][place.column], p);
    if (op.drop > 0) drop_scores<D>(&tile.p[row], op, b, h, query, key, place.column);
    __syncwarp();
    add_product<D>(acc, &tile.p[row], tile.v, 4 * place.column, min(N - key, columns<D>));
  }

#pragma unroll
  for (int i = 0; i < m; ++i) {
    row_sum[i] = warp_sum<8>(row_sum[i]);
    if (place.column == 0 && query + 4 * i < Q)
      op.lse[(int64_t{b} * op.shape.H + h) * Q + query + 4 * i] = row_max[i] + logf(row_sum[i]);
#pragma unroll
    for (int j = 0; j < D / 8; ++j) acc[i][j] /= row_sum[i];
  }
  store_rows<D>(rows_of(static_cast<float*>(op.out), op, 1, 0, b, h), acc, 1, query,
                4 * place.column, Q);
}

// ---- backward -----------------------------------------------------------------------------------
// If rows are queries, `row` holds q and dout, `column` k and v; if rows are keys, the reverse.
template <int D>
struct BackwardShared {
  float row[2][Backward<D>::rows][D + pad];
  float column[2][columns<D>][D + pad];
  float w[Backward<D>::rows][columns<D> + pad];
  float delta[Backward<D>::rows];  // of the queries, which are rows or columns
};

// bits[query]: which of this lane's keys are kept; all without dropout. row, column: this lane's
// first row and column.
template <int D, bool rows_are_keys, int queries>
__device__ void kept_keys(uint32_t (&bits)[queries], const AttentionBackward& op, int b, int h,
                          int row, int column, const Place& place) {
#pragma unroll
  for (uint32_t& word : bits) word = ~0u;
  if (op.drop == 0) return;
  const KeepDecisions keep(op, b);
  const uint64_t N = op.shape.N, head = h * N;
  if constexpr (rows_are_keys)
    keep_bits<queries, 4 * Backward<D>::m>(bits, keep, (head + column) * N + (row - place.row),
                                           8 * N);
  else
    keep_bits<queries, columns<D>>(bits, keep, (head + row) * N + (column - place.column), 4 * N);
#pragma unroll
  for (uint32_t& word : bits) word >>= rows_are_keys ? place.row : place.column;
}

// p holds S and becomes P * mask / (1 - drop); ds holds dP and becomes dS, without the scale.
template <bool rows_are_keys, int m, int n, int queries>
__device__ void softmax_backward(float (&p)[m][n], float (&ds)[m][n], const float (&lse)[queries],
                                 const float (&delta)[queries], const uint32_t (&bits)[queries],
                                 float scale, float keep_factor, int column, int end) {
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const int query = rows_are_keys ? j : i;
      const float keep = bits[query] >> (rows_are_keys ? 4 * i : 8 * j) & 1 ? keep_factor : 0;
      const float e = column + 8 * j < end ? expf(fmaf(p[i][j], scale, -lse[query])) : 0;
      p[i][j] = e * keep;
      ds[i][j] = e * (ds[i][j] * keep - delta[query]);
    }
}

template <int D, bool rows_are_keys>
__global__ void __launch_bounds__(Backward<D>::threads, Backward<D>::blocks)
    attention_fp32_backward(AttentionBackward op) {
  await_kernel_ahead();
  constexpr int m = Backward<D>::m, n = columns<D> / 8, threads = Backward<D>::threads;
  constexpr int rows = Backward<D>::rows, queries = rows_are_keys ? n : m;  // per lane
  auto& tile = shared<BackwardShared<D>>();
  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int N = op.shape.N, Q = op.shape.Q;
  const int row_end = rows_are_keys ? N : Q, column_end = rows_are_keys ? Q : N;
  const float* qkv = static_cast<const float*>(op.qkv);
  float* dqkv = static_cast<float*>(op.dqkv);
  const float* lse_of_head = op.lse + (int64_t{b} * op.shape.H + h) * Q;
  const Rows<const float> q = rows_of(qkv, op, 3, 0, b, h), k = rows_of(qkv, op, 3, 1, b, h),
                          v = rows_of(qkv, op, 3, 2, b, h),
                          dout = rows_of(static_cast<const float*>(op.dout), op, 1, 0, b, h),
                          out = rows_of(static_cast<const float*>(op.out), op, 1, 0, b, h);
  const int first = static_cast<int>(blockIdx.x) * rows;  // of the block's rows
  const Place place(!rows_are_keys);
  const int row_in_block = static_cast<int>(threadIdx.x) / warp_size * 4 * m + place.row;
  const int row = first + row_in_block;
  const bool active = row - place.row < row_end;  // the whole warp
  const float scale = 1 / sqrtf(static_cast<float>(D)), keep_factor = keep_scale(op.drop);

  float lse[queries], delta[queries];
  if constexpr (rows_are_keys) {
    load_rows<D, rows, threads>(tile.row[0], k, first, N);
    load_rows<D, rows, threads>(tile.row[1], v, first, N);
  } else {
    load_rows<D, rows, threads>(tile.row[0], q, first, Q);
    load_dout<D, rows, threads>(tile.row[1], tile.delta, dout, out, first, Q);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < m; ++i) {
      lse[i] = row + 4 * i < Q ? lse_of_head[row + 4 * i] : 0;
      delta[i] = tile.delta[row_in_block + 4 * i];
    }
  }

  float gradient[rows_are_keys ? 2 : 1][m][D / 8];  // dK, dV or dQ; dK and dQ without the scale
#pragma unroll
  for (auto& matrix : gradient)
#pragma unroll
    for (auto& line : matrix)
#pragma unroll
      for (float& x : line) x = 0;

  for (int column = 0; column < column_end; column += columns<D>) {
    __syncthreads();  // until all threads are done with the previous columns
    if constexpr (rows_are_keys) {
      load_rows<D, columns<D>, threads>(tile.column[0], q, column, Q);
      load_dout<D, columns<D>, threads>(tile.column[1], tile.delta, dout, out, column, Q);
    } else {
      load_rows<D, columns<D>, threads>(tile.column[0], k, column, N);
      load_rows<D, columns<D>, threads>(tile.column[1], v, column, N);
    }
    __syncthreads();
    if (!active) continue;
    const int mine = column + place.column, count = min(column_end - column, columns<D>);
    float p[m][n], ds[m][n];
    dot_rows<D>(p, &tile.row[0][row_in_block], &tile.column[0][place.column]);
    dot_rows<D>(ds, &tile.row[1][row_in_block], &tile.column[1][place.column]);
    uint32_t bits[queries];
    kept_keys<D, rows_are_keys>(bits, op, b, h, row, mine, place);
    if constexpr (rows_are_keys) {
#pragma unroll
      for (int j = 0; j < n; ++j) {
        lse[j] = mine + 8 * j < Q ? lse_of_head[mine + 8 * j] : 0;
        delta[j] = tile.delta[place.column + 8 * j];
      }
    }
    softmax_backward<rows_are_keys>(p, ds, lse, delta, bits, scale, keep_factor, mine, column_end);
    float* w = &tile.w[row_in_block][place.column];
    if constexpr (rows_are_keys) {
      store_scores<columns<D> + pad>(w, p);
      __syncwarp();
      add_product<D>(gradient[1], &tile.w[row_in_block], tile.column[1], 4 * place.column, count);
      __syncwarp();
    }
    store_scores<columns<D> + pad>(w, ds);
    __syncwarp();
    add_product<D>(gradient[0], &tile.w[row_in_block], tile.column[0], 4 * place.column, count);
  }

  // For tokens that are not queries, dQ is 0, the initial value of `gradient`.
  store_rows<D>(rows_of(dqkv, op, 3, rows_are_keys ? 1 : 0, b, h), gradient[0], scale, row,
                4 * place.column, N);
  if constexpr (rows_are_keys)
    store_rows<D>(rows_of(dqkv, op, 3, 2, b, h), gradient[1], 1, row, 4 * place.column, N);
}

}  // namespace

void attention_forward_fp32(const AttentionForward& op, cudaStream_t stream) {
  by_head_dim(op.shape.D, [&]<int D>() {
    const dim3 grid(ceil_div(op.shape.Q, Forward<D>::rows), op.shape.H, op.shape.B);
    launch<attention_fp32_forward<D>>(grid, Forward<D>::threads, sizeof(ForwardShared<D>), stream,
                                      op);
  });
}

void attention_backward_fp32(const AttentionBackward& op, cudaStream_t stream) {
  by_head_dim(op.shape.D, [&]<int D>() {
    const dim3 grid(ceil_div(op.shape.N, Backward<D>::rows), op.shape.H, op.shape.B);
    constexpr size_t bytes = sizeof(BackwardShared<D>);
    static_assert(bytes <= 64 * 1024 && sizeof(ForwardShared<D>) <= 64 * 1024, "fits sm_75");
    launch<attention_fp32_backward<D, true>>(grid, Backward<D>::threads, bytes, stream, op);
    launch<attention_fp32_backward<D, false>>(grid, Backward<D>::threads, bytes, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
