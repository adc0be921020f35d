// Residual add and layer normalisation over the last dimension, row by row:
//   sum = inp + drop_path(dropout(residual)),   out = (sum - mean) * rstd * weight + bias
//   dinp = dsum + rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),   g = dout * weight,
//   xhat = (sum - mean) * rstd;   dweight (+)= sum of dout * xhat,   dbias (+)= sum of dout
//   dresidual = drop_path(dropout(dinp))
// Saved for backward: sum, mean, rstd. dinp =; dweight, dbias = or += per accumulate. Mean and rstd
// are computed from sum as stored; the variance is computed from differences from the mean, in a
// second pass, so that nothing cancels.
//
// Any C: a warp per row, one element per access; dweight and dbias by column_sums.cuh's stripes.
// If C allows 16-byte accesses and is at most 1024, the row stays on the chip between passes:
//   8 lanes of a warp (C <= 192) or all 32 share a row, each with `size` columns in 16-byte packs;
//   in forward, a thread holds its part of one row in registers;
//   in backward, one block per SM loops over the rows: a warp prefetches its next rows to shared
//   memory while it works on the current ones, and a thread keeps its columns' dweight and dbias
//   in registers.
// The last block to finish adds up the blocks' dweight and dbias; if rows are long,
// finish_column_sums does so, since one block would take longer than a launch.
//
// 8 (backward 14) flops per element for 8 to 16 bytes in fp32, half of these in 16 bits: memory is
// the limit. Registers and shared memory: tests/kernels/resources.txt.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_sums.cuh"
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/gemm/dropout.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// A thread normalises a row.
template <class T>
__global__ void layernorm_forward_plain(LayerNormForward op) {
  const size_t rows = op.shape.rows, C = op.shape.C, row = thread_number();
  if (row >= rows) return;
  const T* inp = as<T>(op.inp) + row * C;
  if (op.residual) {
    const T* residual = as<T>(op.residual) + row * C;
    T* sum = as<T>(op.sum) + row * C;
    const DroppedRow dropout(op, row, C);
    const float factor = keep_factor(op.drop_path, is_kept(op, row));
    for (size_t c = 0; c < C; ++c)
      sum[c] = from_float<T>(to_float(inp[c]) +
                             times(dropout.dropped(to_float(residual[c]), c), factor));
    inp = sum;
  }
  float sum = 0, squares = 0;
  for (size_t c = 0; c < C; ++c) sum += to_float(inp[c]);
  const float mean = sum / C;
  for (size_t c = 0; c < C; ++c) squares += (to_float(inp[c]) - mean) * (to_float(inp[c]) - mean);
  const float rstd = 1 / sqrtf(squares / C + op.eps);
  for (size_t c = 0; c < C; ++c)
    as<T>(op.out)[row * C + c] =
        from_float<T>((to_float(inp[c]) - mean) * rstd * op.weight[c] + op.bias[c]);
  op.mean[row] = mean, op.rstd[row] = rstd;
}

// A thread computes a row of dinp.
template <class T>
__global__ void layernorm_backward_plain(LayerNormBackward op) {
  const size_t rows = op.shape.rows, C = op.shape.C, row = thread_number();
  if (row >= rows) return;
  const T *dout = as<T>(op.dout) + row * C, *sum = as<T>(op.sum) + row * C;
  const float mean = op.mean[row], rstd = op.rstd[row];
  const DroppedRow dropout(op, row, C);
  const float factor = keep_factor(op.drop_path, is_kept(op, row));
  float g_mean = 0, g_xhat_mean = 0;
  for (size_t c = 0; c < C; ++c) {
    const float g = to_float(dout[c]) * op.weight[c], xhat = (to_float(sum[c]) - mean) * rstd;
    g_mean += g / C;
    g_xhat_mean += g * xhat / C;
  }
  for (size_t c = 0; c < C; ++c) {
    const float g = to_float(dout[c]) * op.weight[c], xhat = (to_float(sum[c]) - mean) * rstd;
    const float dsum = op.dsum ? to_float(as<T>(op.dsum)[row * C + c]) : 0;
    const float d = dsum + rstd * (g - g_mean - xhat * g_xhat_mean);
    as<T>(op.dinp)[row * C + c] = from_float<T>(d);
    if (op.dresidual)
      as<T>(op.dresidual)[row * C + c] = from_float<T>(times(dropout.dropped(d, c), factor));
  }
}

// A thread adds up a column for dweight and dbias.
template <class T>
__global__ void layernorm_backward_weight_plain(LayerNormBackward op) {
  const size_t rows = op.shape.rows, C = op.shape.C, c = thread_number();
  if (c >= C) return;
  float dweight = 0, dbias = 0;
  for (size_t row = 0; row < rows; ++row) {
    const float dout = to_float(as<T>(op.dout)[row * C + c]);
    dweight += dout * (to_float(as<T>(op.sum)[row * C + c]) - op.mean[row]) * op.rstd[row];
    dbias += dout;
  }
  set_or_add(op.dweight[c], dweight, op.accumulate);
  set_or_add(op.dbias[c], dbias, op.accumulate);
}

// ---- any C --------------------------------------------------------------------------------------
constexpr int any_threads = 128, any_rows = any_threads / warp_size;  // of a block

template <class T>
__global__ void __launch_bounds__(any_threads) layernorm_forward_any(LayerNormForward op) {
  await_kernel_ahead();
  const auto [rows, C] = op.shape;
  const unsigned row = blockIdx.x * any_rows + threadIdx.x / warp_size;
  if (row >= static_cast<unsigned>(rows)) return;  // whole warps return, and there are no barriers
  const size_t begin = static_cast<size_t>(row) * C;
  const int lane = threadIdx.x % warp_size;
  const T* x = static_cast<const T*>(op.inp) + begin;
  if (op.residual) {
    const T* residual = static_cast<const T*>(op.residual) + begin;
    T* sum = static_cast<T*>(op.sum) + begin;
    const DroppedRow dropout(op, row, C);
    const float factor = keep_factor(op.drop_path, is_kept(op, row));
    for (int c = lane; c < C; c += warp_size)
      sum[c] =
          from_float<T>(to_float(x[c]) + times(dropout.dropped(to_float(residual[c]), c), factor));
    x = sum;  // each thread reads back only what it wrote
  }
  float total = 0;
  for (int c = lane; c < C; c += warp_size) total += to_float(x[c]);
  const float mean = warp_sum(total) / C;
  float squares = 0;
  for (int c = lane; c < C; c += warp_size) {
    const float d = to_float(x[c]) - mean;
    squares = fmaf(d, d, squares);
  }
  const float rstd = rsqrtf(warp_sum(squares) / C + op.eps);
  T* out = static_cast<T*>(op.out) + begin;
  for (int c = lane; c < C; c += warp_size)
    out[c] = from_float<T>(fmaf((to_float(x[c]) - mean) * rstd, op.weight[c], op.bias[c]));
  if (lane == 0) op.mean[row] = mean, op.rstd[row] = rstd;
}

template <class T>
__global__ void __launch_bounds__(any_threads) layernorm_backward_any(LayerNormBackward op) {
  await_kernel_ahead();
  const auto [rows, C] = op.shape;
  const unsigned row = blockIdx.x * any_rows + threadIdx.x / warp_size;
  if (row >= static_cast<unsigned>(rows)) return;  // whole warps return, and there are no barriers
  const size_t begin = static_cast<size_t>(row) * C;
  const int lane = threadIdx.x % warp_size;
  const T* dout = static_cast<const T*>(op.dout) + begin;
  const T* sum = static_cast<const T*>(op.sum) + begin;
  const T* dsum = op.dsum ? static_cast<const T*>(op.dsum) + begin : nullptr;
  const float mean = op.mean[row], rstd = op.rstd[row];
  float g_sum = 0, g_xhat_sum = 0;
  for (int c = lane; c < C; c += warp_size) {
    const float g = to_float(dout[c]) * op.weight[c];
    g_sum += g;
    g_xhat_sum = fmaf(g, (to_float(sum[c]) - mean) * rstd, g_xhat_sum);
  }
  const float g_mean = warp_sum(g_sum) / C, slope = warp_sum(g_xhat_sum) / C * rstd;
  T* dinp = static_cast<T*>(op.dinp) + begin;
  T* dresidual = op.dresidual ? static_cast<T*>(op.dresidual) + begin : nullptr;
  const DroppedRow dropout(op, row, C);
  const float factor = keep_factor(op.drop_path, is_kept(op, row));
  for (int c = lane; c < C; c += warp_size) {
    const float g = fmaf(to_float(dout[c]), op.weight[c], -g_mean);
    float d = fmaf(to_float(sum[c]) - mean, -slope, g) * rstd;
    if (dsum) d += to_float(dsum[c]);
    dinp[c] = from_float<T>(d);
    if (dresidual) dresidual[c] = from_float<T>(times(dropout.dropped(d, c), factor));
  }
}

// partial [blocks, 2, C]: dbias, dweight. Runs before dinp is written, as dinp may be dout itself.
template <class T>
__global__ void __launch_bounds__(256) layernorm_backward_any_columns(LayerNormBackward op) {
  await_kernel_ahead();
  using S = Stripe<1>;
  const int C = op.shape.C, column = S::column();
  const unsigned rows = column < C ? op.shape.rows : 0;
  float dweight[1] = {}, dbias[1] = {};
#pragma unroll 4
  for (unsigned row = S::row(); row < rows; row += S::step()) {
    const size_t at = static_cast<size_t>(row) * C + column;
    const float dout = to_float(static_cast<const T*>(op.dout)[at]);
    const float sum = to_float(static_cast<const T*>(op.sum)[at]);
    dweight[0] = fmaf(dout, (sum - op.mean[row]) * op.rstd[row], dweight[0]);
    dbias[0] += dout;
  }
  auto& s = shared<S::Shared>();
  float* partial = static_cast<float*>(op.workspace) + size_t(blockIdx.y) * 2 * C;
  S::write_sums(dbias, partial, C, s);
  __syncthreads();
  S::write_sums(dweight, partial + C, C, s);
}

// ---- C in packs, forward: the row is read once, 16 bytes per access, and kept in registers ------
// How a warp splits its rows: pack p of a thread begins at column(p).
template <class T, int lanes_, int size_>
struct Split {
  static constexpr int lanes = lanes_, size = size_, width = Pack<T>::size, packs = size / width;
  static constexpr int rows = warp_size / lanes;  // of a warp

  __device__ static int column(int p) {
    return (p * lanes + static_cast<int>(threadIdx.x) % lanes) * width;
  }
  // Columns past C load column 0; their results are discarded.
  __device__ static int column_in(int p, int C) { return column(p) < C ? column(p) : 0; }
  __device__ static void load(Pack<T> (&to)[packs], const void* from, size_t begin, int C) {
#pragma unroll
    for (int p = 0; p < packs; ++p)
      to[p] = load_pack(static_cast<const T*>(from) + begin + column_in(p, C));
  }
};

template <int packs>
__device__ float sum_of(const float (&x)[packs]) {
  float sum = x[0];
#pragma unroll
  for (int p = 1; p < packs; ++p) sum += x[p];
  return sum;
}

constexpr int forward_threads = 128;
template <class T, int lanes>  // per SM, at least
constexpr int forward_blocks = sizeof(T) == 4 ? 6
                               : lanes == 8   ? 8
                                              : 7;

template <bool has_dropout, class T, int lanes, int size>
__device__ void forward(const LayerNormForward& op, float inverse_C) {
  using S = Split<T, lanes, size>;
  constexpr int packs = S::packs, width = S::width;
  const int C = op.shape.C;
  const unsigned last = op.shape.rows - 1;
  const unsigned unclamped = blockIdx.x * (forward_threads / lanes) + threadIdx.x / lanes;
  const unsigned row = unclamped < last ? unclamped : last;
  const bool in_bounds = unclamped <= last;  // all threads take part in their warp's sums
  const size_t begin = static_cast<size_t>(row) * C;

  const DroppedRow dropout(op, row, C);
  const float factor = keep_factor(op.drop_path, is_kept(op, row));  // before x needs the registers
  Pack<T> inp[packs];
  S::load(inp, op.inp, begin, C);
  float x[packs][width];
  if (op.residual) {
    Pack<T> residual[packs];
    S::load(residual, op.residual, begin, C);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      float other[width];
      to_floats<T>(x[p], inp[p]);
      to_floats<T>(other, residual[p]);
      if constexpr (has_dropout) dropout.drop(other, S::column(p));
      Pack<T> sum;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sum.at[i] = from_float<T>(x[p][i] + times(other[i], factor));
        x[p][i] = to_float(sum.at[i]);
      }
      if (in_bounds && S::column(p) < C)
        store_pack(static_cast<T*>(op.sum) + begin + S::column(p), sum);
    }
  } else {
#pragma unroll
    for (int p = 0; p < packs; ++p) to_floats<T>(x[p], inp[p]);
  }

  float total[packs] = {};
#pragma unroll
  for (int p = 0; p < packs; ++p)
    if (S::column(p) < C)
#pragma unroll
      for (int i = 0; i < width; ++i) total[p] += x[p][i];
  const float mean = warp_sum<lanes>(sum_of(total)) * inverse_C;

  float squares[packs] = {};
#pragma unroll
  for (int p = 0; p < packs; ++p) {
#pragma unroll
    for (int i = 0; i < width; ++i) x[p][i] -= mean;
    if (S::column(p) < C)
#pragma unroll
      for (int i = 0; i < width; ++i) squares[p] = fmaf(x[p][i], x[p][i], squares[p]);
  }
  const float rstd = rsqrtf(fmaf(warp_sum<lanes>(sum_of(squares)), inverse_C, op.eps));

#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const auto weight = load<width>(op.weight + S::column_in(p, C));
    const auto bias = load<width>(op.bias + S::column_in(p, C));
    Pack<T> out;
#pragma unroll
    for (int i = 0; i < width; ++i)
      out.at[i] = from_float<T>(fmaf(x[p][i] * rstd, weight.at[i], bias.at[i]));
    if (in_bounds && S::column(p) < C)
      store_pack(static_cast<T*>(op.out) + begin + S::column(p), out);
  }
  if (in_bounds && threadIdx.x % lanes == 0) op.mean[row] = mean, op.rstd[row] = rstd;
}

template <class T, int lanes, int size>
__global__ void __launch_bounds__(forward_threads, (forward_blocks<T, lanes>))
    layernorm_forward(LayerNormForward op, float inverse_C) {
  await_kernel_ahead();
  forward<false, T, lanes, size>(op, inverse_C);
}
// Philox needs more registers.
template <class T, int lanes, int size>
__global__ void __launch_bounds__(forward_threads, (forward_blocks<T, lanes> - 2))
    layernorm_forward_dropout(LayerNormForward op, float inverse_C) {
  await_kernel_ahead();
  forward<true, T, lanes, size>(op, inverse_C);
}

// ---- C in packs, backward: dweight and dbias in the same pass as dinp ---------------------------
// An upper bound that leaves each thread enough registers; shared memory may lower it.
template <class T, int lanes>
constexpr int max_backward_threads = (lanes == 8 ? 512 : 384) - (sizeof(T) == 4 ? 128 : 0);

// A warp's shared memory: two rounds of rows, each lane using its own part; at the end, its sums.
template <class T, int lanes, int size>
struct BackwardWarp {
  struct Rows {
    Pack<T> dout[size / Pack<T>::size][warp_size], sum[size / Pack<T>::size][warp_size],
        dsum[size / Pack<T>::size][warp_size];
  };
  union {
    Rows rows[2];
    float sums[lanes * size];
  };
};

// to[column] = the sum over the block; each thread passes its own sums, of its Split's columns.
template <class T, int lanes, int size>
__device__ void write_block_sums(float (&sum)[size], float* to, int C,
                                 BackwardWarp<T, lanes, size>* warps) {
  using S = Split<T, lanes, size>;
  using Rows = RowSums<lanes, size>;
  const int first = Rows::add(sum);
#pragma unroll
  for (int i = 0; i < Rows::count; ++i) {
    const int e = first + i;
    warps[threadIdx.x / warp_size].sums[S::column(e / S::width) + e % S::width] = sum[i];
  }
  __syncthreads();
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / warp_size; ++w) total += warps[w].sums[c];
    to[c] = total;
  }
}

// Starts the copy of this lane's part of a row. A row out of bounds becomes zeros, which add
// nothing.
template <class T, class S, class Rows>
__device__ void prefetch(const LayerNormBackward& op, unsigned row, Rows& to) {
  const unsigned lane = threadIdx.x % warp_size;
  const size_t begin = static_cast<size_t>(row) * op.shape.C;
#pragma unroll
  for (int p = 0; p < S::packs; ++p) {
    const bool in_bounds = row < static_cast<unsigned>(op.shape.rows) && S::column(p) < op.shape.C;
    const size_t at = in_bounds ? begin + S::column(p) : 0;
    cp_async_16(&to.dout[p][lane], static_cast<const T*>(op.dout) + at, in_bounds);
    cp_async_16(&to.sum[p][lane], static_cast<const T*>(op.sum) + at, in_bounds);
    if (op.dsum) cp_async_16(&to.dsum[p][lane], static_cast<const T*>(op.dsum) + at, in_bounds);
  }
  cp_async_commit();
}

template <class T, int lanes, int size>
__global__ void __launch_bounds__((max_backward_threads<T, lanes>), 1)
    layernorm_backward(LayerNormBackward op, float inverse_C, RowParts parts) {
  await_kernel_ahead();
  using S = Split<T, lanes, size>;
  using Warp = BackwardWarp<T, lanes, size>;
  constexpr int packs = S::packs, width = S::width;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const unsigned rows = op.shape.rows, step = gridDim.x * (blockDim.x / warp_size) * S::rows;
  const int C = op.shape.C;
  Warp* const warps = &shared<Warp>();

  float dweight[size] = {}, dbias[size] = {};
  unsigned first = (warp * gridDim.x + blockIdx.x) * S::rows;  // of the warp's rows
  unsigned row = first + lane / lanes;
  prefetch<T, S>(op, row, warps[warp].rows[0]);
  const auto clamped = [rows](unsigned r) { return r < rows ? r : rows - 1; };
  float next_mean = op.mean[clamped(row)], next_rstd = op.rstd[clamped(row)];
  for (int round = 0; first < rows; first += step, row += step, round ^= 1) {
    const float mean = next_mean, rstd = next_rstd;
    prefetch<T, S>(op, row + step, warps[warp].rows[round ^ 1]);
    next_mean = op.mean[clamped(row + step)], next_rstd = op.rstd[clamped(row + step)];
    cp_async_wait<1>();
    const auto& mine = warps[warp].rows[round];

    float g_sum[packs] = {}, g_xhat_sum[packs] = {};
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const auto weight = load<width>(op.weight + S::column_in(p, C));
      float dout[width], sum[width];
      to_floats(dout, load_pack<T>(mine.dout[p][lane].at));
      to_floats(sum, load_pack<T>(mine.sum[p][lane].at));
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float xhat = (sum[i] - mean) * rstd, g = dout[i] * weight.at[i];
        dweight[p * width + i] = fmaf(dout[i], xhat, dweight[p * width + i]);
        dbias[p * width + i] += dout[i];
        g_sum[p] += g;
        g_xhat_sum[p] = fmaf(g, xhat, g_xhat_sum[p]);
      }
    }
    const float g_mean = warp_sum<lanes>(sum_of(g_sum)) * inverse_C;
    const float slope = warp_sum<lanes>(sum_of(g_xhat_sum)) * inverse_C * rstd;
    const bool kept = is_kept(op, row);

    __syncwarp();  // the row is read again: keeping it in registers would halve the warps
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const auto weight = load<width>(op.weight + S::column_in(p, C));
      float dout[width], sum[width], d[width];
      to_floats(dout, load_pack<T>(mine.dout[p][lane].at));
      to_floats(sum, load_pack<T>(mine.sum[p][lane].at));
#pragma unroll
      for (int i = 0; i < width; ++i)
        d[i] = fmaf(sum[i] - mean, -slope, fmaf(dout[i], weight.at[i], -g_mean)) * rstd;
      if (op.dsum) {
        float dsum[width];
        to_floats(dsum, load_pack<T>(mine.dsum[p][lane].at));
#pragma unroll
        for (int i = 0; i < width; ++i) d[i] += dsum[i];
      }
      if (row >= rows || S::column(p) >= C) continue;
      const size_t at = static_cast<size_t>(row) * C + S::column(p);
      store_pack(static_cast<T*>(op.dinp) + at, pack_of<T>(d));
      if (!op.dresidual) continue;
      DroppedRow(op, row, C).drop(d, S::column(p));
      const float factor = keep_factor(op.drop_path, kept);  // recomputed to save a register
#pragma unroll
      for (int i = 0; i < width; ++i) d[i] = times(d[i], factor);
      store_pack(static_cast<T*>(op.dresidual) + at, pack_of<T>(d));
    }
  }

  cp_async_wait<0>();
  __syncwarp();  // the sums take the rows' place
  float* partial = static_cast<float*>(op.workspace) + size_t(blockIdx.x) * 2 * C;
  write_block_sums(dbias, partial, C, warps);
  __syncthreads();
  write_block_sums(dweight, partial + C, C, warps);
  if constexpr (lanes < warp_size) {
    using Merge = LastBlock<NormSums, max_backward_threads<T, lanes>, lanes * size, 4>;
    static_assert(sizeof(typename Merge::Shared) <= 2 * sizeof(Warp));
    const NormSums sums{
        .dweight = op.dweight, .dbias = op.dbias, .C = C, .accumulate = op.accumulate};
    Merge::run(
        sums, parts, static_cast<int>(blockIdx.x), 0, [C](int c) { return c < C ? c : -1; },
        reinterpret_cast<typename Merge::Shared&>(*warps));
  }
}

// ---- launch -------------------------------------------------------------------------------------
// Calls f.operator()<T, lanes, size>() with the narrowest split that holds a row; lanes 0: any C.
template <class F>
void by_split(DType dtype, int C, F f) {
  by_dtype(dtype, [&]<class T>() {
    if (!in_packs<T>(C) || C > 1024)
      f.template operator()<T, 0, 0>();
    else if (C <= 192)
      f.template operator()<T, 8, 24>();
    else
      f.template operator()<T, 32, 32>();
  });
}

// gridDim.y counts the blocks that write partial dweight and dbias.
template <int lanes>
dim3 backward_grid(const DeviceProps& props, RowsShape shape) {
  if constexpr (lanes == 0)
    return Stripe<1>::grid(props, 4, shape.rows, shape.C);
  else
    return {1, unsigned(std::min(props.sms, ceil_div(shape.rows, warp_size / lanes)))};
}

}  // namespace

template <>
void CudaKernels::run(const LayerNormForward& op, cudaStream_t stream) {
  const auto [rows, C] = op.shape;
  by_split(op.dtype, C, [&]<class T, int lanes, int size>() {
    if constexpr (lanes == 0)
      launch<layernorm_forward_any<T>>(ceil_div(rows, any_rows), any_threads, 0, stream, op);
    else {
      const int blocks = ceil_div(rows, forward_threads / lanes);
      if (op.dropout.drop > 0)
        launch<layernorm_forward_dropout<T, lanes, size>>(blocks, forward_threads, 0, stream, op,
                                                          1.0f / C);
      else
        launch<layernorm_forward<T, lanes, size>>(blocks, forward_threads, 0, stream, op, 1.0f / C);
    }
  });
}

template <>
size_t CudaKernels::workspace(const LayerNormBackward& op) {
  size_t blocks = 0;
  by_split(op.dtype, op.shape.C, [&]<class T, int lanes, int size>() {
    blocks = backward_grid<lanes>(props_, op.shape).y;
  });
  return sizeof(float) * blocks * 2 * op.shape.C;
}

template <>
void CudaKernels::run(const LayerNormBackward& op, cudaStream_t stream) {
  const auto [rows, C] = op.shape;
  by_split(op.dtype, C, [&]<class T, int lanes, int size>() {
    const dim3 grid = backward_grid<lanes>(props_, op.shape);
    const int blocks = static_cast<int>(grid.y);
    // One group, since there are few blocks.
    const RowParts parts{.partial = static_cast<float*>(op.workspace),
                         .arrived = props_.arrived,
                         .count = blocks,
                         .C = C,
                         .group = blocks};
    if constexpr (lanes == 0) {
      launch<layernorm_backward_any_columns<T>>(grid, Stripe<1>::threads, sizeof(Stripe<1>::Shared),
                                                stream, op);
      launch<layernorm_backward_any<T>>(ceil_div(rows, any_rows), any_threads, 0, stream, op);
    } else {
      constexpr int bytes = sizeof(BackwardWarp<T, lanes, size>);
      const int warps =
          std::min(props_.shared_bytes / bytes, max_backward_threads<T, lanes> / warp_size);
      launch<layernorm_backward<T, lanes, size>>(grid.y, warps * warp_size, size_t(warps) * bytes,
                                                 stream, op, 1.0f / C, parts);
    }
    if (lanes == 0 || lanes == warp_size)
      finish_column_sums({.out = op.dbias,
                          .out2 = op.dweight,
                          .partial = parts.partial,
                          .C = C,
                          .C2 = C,
                          .blocks = parts.count,
                          .accumulate = op.accumulate},
                         stream);
  });
}

template <>
void PlainKernels::run(const LayerNormForward& op, cudaStream_t stream) {
  by_dtype(op.dtype,
           [&]<class T>() { launch_each<layernorm_forward_plain<T>>(op.shape.rows, stream, op); });
}

template <>
void PlainKernels::run(const LayerNormBackward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {  // columns first: dinp may be dout itself
    launch_each<layernorm_backward_weight_plain<T>>(op.shape.C, stream, op);
    launch_each<layernorm_backward_plain<T>>(op.shape.rows, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
