// Residual add and layer normalisation over the last dimension, row by row:
//   sum = inp + residual,   out = (sum - mean) * rstd * weight + bias
//   dinp = dsum + rstd * (g - mean_C(g) - xhat * mean_C(g * xhat)),   g = dout * weight,
//   xhat = (sum - mean) * rstd;   dweight (+)= sum of dout * xhat,   dbias (+)= sum of dout
// Saved for backward: sum, mean, rstd. dinp =; dweight, dbias = or += by accumulate. Statistics are
// those of sum as it is stored, and the variance is taken around the mean in a second look at the
// registers: no cancellation.
//
// Threads, where C allows 16-byte accesses and is at most 1024: `lanes` neighbours of a warp share
// a row, each with `size` of its columns, 16 bytes at a time:
//   C <= 192: 8 lanes x 24, 4 rows a warp;   C <= 1024: 32 lanes x 32, 1 row a warp.
// Forward, a thread has its part of one row in registers, and goes. Backward, one block on each
// SM walks over the rows; a thread keeps dweight and dbias of its columns in registers,
// and a warp copies its next rows to shared memory while it works on these. Then column_sums.cuh's
// second stage. Other C: a warp walks over its row as often as it must, 1 element an access;
// dweight and dbias are summed by stripes.
//
// 8 (backward 14) flops an element for 8 to 16 bytes in fp32, half of them in 16 bits: memory is
// the limit. An H200 (4.3 TB/s, 132 SMs, 1.75 GHz) wants some 30 KB under way on each
// of them and at 80% moves 15 bytes a clock: a row of 1024 in 16 bits, backward with dsum, in 550
// clocks.
//                        bytes   registers       shared   warps on          reads under way
//                        a row   sm_80  sm_90    a warp   sm_80  sm_90      sm_80     sm_90
//   forward,  16 bits     4-8 C   62-72  64-72        0   32-28  32-28    48-56 KB  48-56 KB
//             fp32       8-16 C   77-80  76-80        0      24     24    72-96 KB  72-96 KB
//   backward, C <= 192
//             16 bits       8 C     116    124     9 KB      16     16       72 KB     72 KB
//             fp32         16 C     128    146    18 KB       9     12       81 KB    108 KB
//   backward, C <= 1024
//             16 bits       8 C     166    156    12 KB      12     12       72 KB     72 KB
//             fp32         16 C     160    177    24 KB       6      8       72 KB     96 KB
// That row takes 780 of the 2200 instructions that can be issued meanwhile, and 26 KB of the 70
// that shared memory and L1 can pass (weight is read twice for each row: kept, it would cost
// registers).
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// How a warp shares out its rows: pack p of a thread begins at column(p).
template <class T, int lanes_, int size_>
struct Split {
  static constexpr int lanes = lanes_, size = size_, width = Pack<T>::size, packs = size / width;
  static constexpr int rows = warp_size / lanes;  // of a warp

  __device__ static int column(int p) {
    return (p * lanes + static_cast<int>(threadIdx.x) % lanes) * width;
  }
  // What lies behind the row's end is loaded from its start instead, computed with and dropped.
  __device__ static int column_in(int p, int C) { return column(p) < C ? column(p) : 0; }
  __device__ static void load(Pack<T> (&to)[packs], const void* from, size_t begin, int C) {
#pragma unroll
    for (int p = 0; p < packs; ++p)
      to[p] = load_pack(static_cast<const T*>(from) + begin + column_in(p, C));
  }
};

template <class T>
__device__ void to_floats(float (&x)[Pack<T>::size], Pack<T> pack) {
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) x[i] = to_float(pack.at[i]);
}

template <int packs>
__device__ float sum_of(const float (&x)[packs]) {
  float sum = x[0];
#pragma unroll
  for (int p = 1; p < packs; ++p) sum += x[p];
  return sum;
}

// ---- forward ------------------------------------------------------------------------------------
constexpr int forward_threads = 128;

template <class T, int lanes, int size>
__global__ void __launch_bounds__(forward_threads, sizeof(T) == 4 ? 6
                                                   : lanes == 8   ? 8
                                                                  : 7)
    layernorm_forward(LayerNormForward op, float inverse_C) {
  using S = Split<T, lanes, size>;
  constexpr int packs = S::packs, width = S::width;
  const unsigned last = op.shape.rows - 1;
  const unsigned wanted = blockIdx.x * (forward_threads / lanes) + threadIdx.x / lanes;
  const unsigned row = wanted < last ? wanted : last;
  const bool live = wanted <= last;  // all threads take part in their warp's sums
  const size_t begin = static_cast<size_t>(row) * op.shape.C;

  Pack<T> inp[packs];
  S::load(inp, op.inp, begin, op.shape.C);
  float x[packs][width];
  if (op.residual) {
    Pack<T> residual[packs];
    S::load(residual, op.residual, begin, op.shape.C);
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      float other[width];
      to_floats<T>(x[p], inp[p]);
      to_floats<T>(other, residual[p]);
      Pack<T> sum;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        sum.at[i] = from_float<T>(x[p][i] + other[i]);
        x[p][i] = to_float(sum.at[i]);
      }
      if (live && S::column(p) < op.shape.C)
        store_pack(static_cast<T*>(op.sum) + begin + S::column(p), sum);
    }
  } else {
#pragma unroll
    for (int p = 0; p < packs; ++p) to_floats<T>(x[p], inp[p]);
  }

  float total[packs] = {};
#pragma unroll
  for (int p = 0; p < packs; ++p)
    if (S::column(p) < op.shape.C)
#pragma unroll
      for (int i = 0; i < width; ++i) total[p] += x[p][i];
  const float mean = warp_sum<lanes>(sum_of(total)) * inverse_C;

  float squares[packs] = {};
#pragma unroll
  for (int p = 0; p < packs; ++p) {
#pragma unroll
    for (int i = 0; i < width; ++i) x[p][i] -= mean;
    if (S::column(p) < op.shape.C)
#pragma unroll
      for (int i = 0; i < width; ++i) squares[p] = fmaf(x[p][i], x[p][i], squares[p]);
  }
  const float rstd = rsqrtf(fmaf(warp_sum<lanes>(sum_of(squares)), inverse_C, op.eps));

#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const auto weight = load<width>(op.weight + S::column_in(p, op.shape.C));
    const auto bias = load<width>(op.bias + S::column_in(p, op.shape.C));
    Pack<T> out;
#pragma unroll
    for (int i = 0; i < width; ++i)
      out.at[i] = from_float<T>(fmaf(x[p][i] * rstd, weight.at[i], bias.at[i]));
    if (live && S::column(p) < op.shape.C)
      store_pack(static_cast<T*>(op.out) + begin + S::column(p), out);
  }
  if (live && threadIdx.x % lanes == 0) op.mean[row] = mean, op.rstd[row] = rstd;
}

// ---- backward -----------------------------------------------------------------------------------
// At most: what leaves a thread the registers that it wants. As many of them run as shared memory
// has room for.
template <class T, int lanes>
constexpr int backward_threads = (lanes == 8 ? 512 : 384) - (sizeof(T) == 4 ? 128 : 0);

// A warp's shared memory: a row's parts of two rounds, each lane's its own; in the end its sums.
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

// to[column] = the block's sum of each thread's `sum`, which the threads have as Split says.
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

template <class T, int lanes, int size>
__global__ void __launch_bounds__((backward_threads<T, lanes>), 1)
    layernorm_backward(LayerNormBackward op, float inverse_C) {
  using S = Split<T, lanes, size>;
  using Warp = BackwardWarp<T, lanes, size>;
  constexpr int packs = S::packs, width = S::width;
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  Warp* const warps = &shared<Warp>();
  const unsigned rows = op.shape.rows, step = gridDim.x * (blockDim.x / warp_size) * S::rows;

  // What isn't there is 0, and adds 0 to all sums.
  const auto fetch = [&](unsigned row, typename Warp::Rows& to) {
    const size_t begin = static_cast<size_t>(row) * op.shape.C;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const bool there = row < rows && S::column(p) < op.shape.C;
      const size_t at = there ? begin + S::column(p) : 0;
      cp_async_16(&to.dout[p][lane], static_cast<const T*>(op.dout) + at, there);
      cp_async_16(&to.sum[p][lane], static_cast<const T*>(op.sum) + at, there);
      if (op.dsum) cp_async_16(&to.dsum[p][lane], static_cast<const T*>(op.dsum) + at, there);
    }
    cp_async_commit();
  };

  float dweight[size] = {}, dbias[size] = {};
  unsigned first = (warp * gridDim.x + blockIdx.x) * S::rows;  // of the warp's rows
  unsigned row = first + lane / lanes;
  fetch(row, warps[warp].rows[0]);
  const auto mean_of = [&](unsigned r) { return op.mean[r < rows ? r : rows - 1]; };
  const auto rstd_of = [&](unsigned r) { return op.rstd[r < rows ? r : rows - 1]; };
  float next_mean = mean_of(row), next_rstd = rstd_of(row);
  for (int round = 0; first < rows; first += step, row += step, round ^= 1) {
    const float mean = next_mean, rstd = next_rstd;
    fetch(row + step, warps[warp].rows[round ^ 1]);
    next_mean = mean_of(row + step), next_rstd = rstd_of(row + step);
    cp_async_wait<1>();
    const auto& mine = warps[warp].rows[round];

    float g_sum[packs] = {}, g_xhat_sum[packs] = {};
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const auto weight = load<width>(op.weight + S::column_in(p, op.shape.C));
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

    __syncwarp();  // the row is read again: kept in registers, it would cost half the warps
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const auto weight = load<width>(op.weight + S::column_in(p, op.shape.C));
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
      Pack<T> dinp;
#pragma unroll
      for (int i = 0; i < width; ++i) dinp.at[i] = from_float<T>(d[i]);
      if (row < rows && S::column(p) < op.shape.C)
        store_pack(static_cast<T*>(op.dinp) + static_cast<size_t>(row) * op.shape.C + S::column(p),
                   dinp);
    }
  }

  cp_async_wait<0>();
  __syncwarp();  // sums take the rows' place
  float* partial = static_cast<float*>(op.workspace) + size_t(blockIdx.x) * 2 * op.shape.C;
  write_block_sums(dweight, partial, op.shape.C, warps);
  __syncthreads();
  write_block_sums(dbias, partial + op.shape.C, op.shape.C, warps);
}

// ---- any C: a warp a row, elements one by one ---------------------------------------------------
constexpr int general_threads = 128;

__device__ inline unsigned warps_row() {
  return blockIdx.x * (general_threads / warp_size) + threadIdx.x / warp_size;
}

template <class T>
__global__ void __launch_bounds__(general_threads) layernorm_forward_any(LayerNormForward op) {
  const unsigned row = warps_row();
  if (row >= static_cast<unsigned>(op.shape.rows))
    return;  // a whole warp, and there are no barriers
  const size_t begin = static_cast<size_t>(row) * op.shape.C;
  const int lane = threadIdx.x % warp_size;
  const T* x = static_cast<const T*>(op.inp) + begin;
  if (op.residual) {
    const T* residual = static_cast<const T*>(op.residual) + begin;
    T* sum = static_cast<T*>(op.sum) + begin;
    for (int c = lane; c < op.shape.C; c += warp_size)
      sum[c] = from_float<T>(to_float(x[c]) + to_float(residual[c]));
    x = sum;  // of which a thread reads what it wrote itself
  }
  float total = 0;
  for (int c = lane; c < op.shape.C; c += warp_size) total += to_float(x[c]);
  const float mean = warp_sum(total) / op.shape.C;
  float squares = 0;
  for (int c = lane; c < op.shape.C; c += warp_size) {
    const float d = to_float(x[c]) - mean;
    squares = fmaf(d, d, squares);
  }
  const float rstd = rsqrtf(warp_sum(squares) / op.shape.C + op.eps);
  T* out = static_cast<T*>(op.out) + begin;
  for (int c = lane; c < op.shape.C; c += warp_size)
    out[c] = from_float<T>(fmaf((to_float(x[c]) - mean) * rstd, op.weight[c], op.bias[c]));
  if (lane == 0) op.mean[row] = mean, op.rstd[row] = rstd;
}

// partial [blocks, 2, C]: dweight, dbias. Before dinp is written, which may lie on dout.
template <class T>
__global__ void __launch_bounds__(256) layernorm_backward_any_columns(LayerNormBackward op) {
  using S = Stripe<1>;
  const int column = S::column();
  const unsigned rows = column < op.shape.C ? op.shape.rows : 0;
  float dweight[1] = {}, dbias[1] = {};
#pragma unroll 4
  for (unsigned row = S::row(); row < rows; row += S::step()) {
    const size_t at = static_cast<size_t>(row) * op.shape.C + column;
    const float dout = to_float(static_cast<const T*>(op.dout)[at]);
    const float sum = to_float(static_cast<const T*>(op.sum)[at]);
    dweight[0] = fmaf(dout, (sum - op.mean[row]) * op.rstd[row], dweight[0]);
    dbias[0] += dout;
  }
  auto& s = shared<S::Shared>();
  float* partial = static_cast<float*>(op.workspace) + size_t(blockIdx.y) * 2 * op.shape.C;
  S::write_sums(dweight, partial, op.shape.C, s);
  __syncthreads();
  S::write_sums(dbias, partial + op.shape.C, op.shape.C, s);
}

template <class T>
__global__ void __launch_bounds__(general_threads) layernorm_backward_any(LayerNormBackward op) {
  const unsigned row = warps_row();
  if (row >= static_cast<unsigned>(op.shape.rows))
    return;  // a whole warp, and there are no barriers
  const size_t begin = static_cast<size_t>(row) * op.shape.C;
  const int lane = threadIdx.x % warp_size;
  const T* dout = static_cast<const T*>(op.dout) + begin;
  const T* sum = static_cast<const T*>(op.sum) + begin;
  const T* dsum = static_cast<const T*>(op.dsum) + begin;
  const float mean = op.mean[row], rstd = op.rstd[row];
  float g_sum = 0, g_xhat_sum = 0;
  for (int c = lane; c < op.shape.C; c += warp_size) {
    const float g = to_float(dout[c]) * op.weight[c];
    g_sum += g;
    g_xhat_sum = fmaf(g, (to_float(sum[c]) - mean) * rstd, g_xhat_sum);
  }
  const float g_mean = warp_sum(g_sum) / op.shape.C,
              slope = warp_sum(g_xhat_sum) / op.shape.C * rstd;
  T* dinp = static_cast<T*>(op.dinp) + begin;
  for (int c = lane; c < op.shape.C; c += warp_size) {
    const float g = fmaf(to_float(dout[c]), op.weight[c], -g_mean);
    const float d = fmaf(to_float(sum[c]) - mean, -slope, g) * rstd;
    dinp[c] = from_float<T>(op.dsum ? d + to_float(dsum[c]) : d);
  }
}

// ---- launch -------------------------------------------------------------------------------------
// Calls f.operator()<T, lanes, size>() with the narrowest split that holds a row, or with lanes 0.
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

// Blocks of the first stage of dweight and dbias are .y.
template <class T, int lanes>
dim3 backward_grid(const DeviceProps& props, int rows, int C) {
  if constexpr (lanes == 0) {
    return Stripe<1>::grid(props, 4, rows, C);
  } else {
    const int most = ceil_div(rows, warp_size / lanes);
    return {1, unsigned(props.sms < most ? props.sms : most)};
  }
}

}  // namespace

template <>
void CudaKernels::run(const LayerNormForward& op, cudaStream_t stream) {
  by_split(op.dtype, op.shape.C, [&]<class T, int lanes, int size>() {
    if constexpr (lanes == 0)
      launch<layernorm_forward_any<T>>(ceil_div(op.shape.rows, general_threads / warp_size),
                                       general_threads, 0, stream, op);
    else
      launch<layernorm_forward<T, lanes, size>>(ceil_div(op.shape.rows, forward_threads / lanes),
                                                forward_threads, 0, stream, op, 1.0f / op.shape.C);
  });
}

template <>
size_t CudaKernels::workspace(const LayerNormBackward& op) {
  size_t bytes = 0;
  by_split(op.dtype, op.shape.C, [&]<class T, int lanes, int size>() {
    bytes = sizeof(float) * 2 * backward_grid<T, lanes>(props_, op.shape.rows, op.shape.C).y *
            op.shape.C;
  });
  return bytes;
}

template <>
void CudaKernels::run(const LayerNormBackward& op, cudaStream_t stream) {
  by_split(op.dtype, op.shape.C, [&]<class T, int lanes, int size>() {
    const dim3 grid = backward_grid<T, lanes>(props_, op.shape.rows, op.shape.C);
    if constexpr (lanes == 0) {
      launch<layernorm_backward_any_columns<T>>(grid, Stripe<1>::threads, sizeof(Stripe<1>::Shared),
                                                stream, op);
      launch<layernorm_backward_any<T>>(ceil_div(op.shape.rows, general_threads / warp_size),
                                        general_threads, 0, stream, op);
    } else {
      constexpr int bytes = sizeof(BackwardWarp<T, lanes, size>),
                    most = backward_threads<T, lanes> / warp_size;
      const int room = props_.shared_bytes / bytes, warps = room < most ? room : most;
      launch<layernorm_backward<T, lanes, size>>(grid.y, warps * warp_size, size_t(warps) * bytes,
                                                 stream, op, 1.0f / op.shape.C);
    }
    finish_column_sums({.out = op.dweight,
                        .out2 = op.dbias,
                        .partial = static_cast<const float*>(op.workspace),
                        .blocks = int(grid.y),
                        .C = op.shape.C,
                        .accumulate = op.accumulate},
                       stream);
  });
}

}  // namespace bv::BAREVISION_GPU
