// Max pool over windows of R x R, and the mean over all positions of an image.
//   max pool      out = maximum of the window, index = r R + s of its first maximum; NaN beats
//                 every number;   dinp = sum of dout over the windows whose index selects this
//                 element, in the windows' order
//   average pool  out[n, c] = sum over positions of inp / positions,   dinp = dout / positions
// All =. Saved for backward: index, one byte per element. NHWC. Backward gathers: no atomics.
//
// Max pool: the plain kernels, or for ResNet's window (3 x 3, stride 2, padding 1) and C in packs:
//   block   4 rows, so that windows read most of the elements they share from L1
//   thread  forward one pack of channels (16 bytes) of out, with three taps' loads in flight;
//           backward 2 x 2 packs of dinp: four windows reach them, each is read once, and warps
//           don't diverge
// Average pool: a block computes 16 packs of channels of one image; 16 groups of threads divide the
// positions, and their sums are added in order.
//
// Memory is the limit; in 16 bits the fast max pool's instructions take about as long (conversions,
// and two comparisons per tap, for order and for NaN). Registers and blocks per SM:
// tests/kernels/resources.txt.
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 256;

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void max_pool_forward_plain(MaxPoolForward op, int P, int Q) {
  const auto [N, H, W, C, R, stride, padding] = op.shape;
  const size_t i = thread_number();
  if (i >= size_t(N) * P * Q * C) return;
  const int c = i % C, q = i / C % Q, p = i / C / Q % P;
  const T* image = as<T>(op.inp) + i / C / Q / P * H * W * C;
  float best = 0;
  int index = -1;
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < R; ++s) {
      const int h = p * stride - padding + r, w = q * stride - padding + s;
      if (h < 0 || h >= H || w < 0 || w >= W) continue;
      const float x = to_float(image[(h * W + w) * C + c]);
      if (index < 0 || x > best || (isnan(x) && !isnan(best))) best = x, index = r * R + s;
    }
  as<T>(op.out)[i] = from_float<T>(best);
  op.index[i] = static_cast<uint8_t>(index);
}

// The first window that reaches row or column `at` of the padded image.
__device__ int first_window(int at, int R, int stride) {
  return at < R ? 0 : (at - R) / stride + 1;
}

template <class T>
__global__ void max_pool_backward_plain(MaxPoolBackward op, int P, int Q) {
  const auto [N, H, W, C, R, stride, padding] = op.shape;
  const size_t i = thread_number();
  if (i >= size_t(N) * H * W * C) return;
  const int c = i % C, x = i / C % W + padding, y = i / C / W % H + padding;
  const size_t n = i / C / W / H;
  float sum = 0;
  for (int p = first_window(y, R, stride); p < P && p * stride <= y; ++p)
    for (int q = first_window(x, R, stride); q < Q && q * stride <= x; ++q) {
      const size_t at = ((n * P + p) * Q + q) * C + c;
      const int tap = (y - p * stride) * R + x - q * stride;
      if (op.index[at] == tap) sum += to_float(as<T>(op.dout)[at]);
    }
  as<T>(op.dinp)[i] = from_float<T>(sum);
}

template <class T>
__global__ void average_pool_forward_plain(AveragePoolForward op) {
  const auto [N, positions, C] = op.shape;
  const size_t i = thread_number(), n = i / C, c = i % C;
  if (i >= size_t(N) * C) return;
  float sum = 0;
  for (int p = 0; p < positions; ++p) sum += to_float(as<T>(op.inp)[(n * positions + p) * C + c]);
  as<T>(op.out)[i] = from_float<T>(sum / positions);
}

template <class T>
__global__ void average_pool_backward_plain(AveragePoolBackward op) {
  const auto [N, positions, C] = op.shape;
  const size_t i = thread_number(), n = i / C / positions, c = i % C;
  if (i >= size_t(N) * positions * C) return;
  as<T>(op.dinp)[i] = from_float<T>(to_float(as<T>(op.dout)[n * C + c]) / positions);
}

// ---- max pool of ResNet -------------------------------------------------------------------------
// Max pool with the window's sizes as constants and a pack of channels per thread. A block computes
// `row_threads` neighbouring packs in each of `rows` rows.
constexpr int R = 3, stride = 2, padding = 1;
constexpr int blocks_per_sm = 4, row_threads = 64, rows = threads / row_threads;

struct Place {
  int row, column, c;
};
template <int width>
__device__ Place place(int C) {
  const unsigned packs = C / width, e = blockIdx.x * row_threads + threadIdx.x % row_threads;
  const unsigned column = e / packs;
  return {static_cast<int>(blockIdx.y * rows + threadIdx.x / row_threads), static_cast<int>(column),
          static_cast<int>(e - column * packs) * width};
}

template <class T>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    max_pool_forward(MaxPoolForward op, int P, int Q) {
  await_kernel_ahead();
  constexpr int width = Pack<T>::size;
  const int H = op.shape.H, W = op.shape.W, C = op.shape.C;
  const auto [p, q, c] = place<width>(C);
  if (p >= P || q >= Q) return;
  const size_t n = blockIdx.z;
  const int top = p * stride - padding, left = q * stride - padding;
  const int first = max(0, -top), last = min(R, H - top) - 1;
  const unsigned end = min(left + R, W);  // of the columns
  const int row = W * C;
  const T* taps = static_cast<const T*>(op.inp) + n * H * row + (top + first) * row + c;

  float best[width];
  int index[width];
#pragma unroll
  for (int i = 0; i < width; ++i) best[i] = -INFINITY, index[i] = first * R + max(0, -left);
  for (int r = first; r <= last; ++r, taps += row) {
    Elements<T, width> x[R];
    bool in_bounds[R];
#pragma unroll
    for (int s = 0; s < R; ++s) {
      const unsigned w = left + s;  // large if negative
      in_bounds[s] = w < end;
      if (in_bounds[s]) x[s] = load<width>(taps + w * C);
    }
#pragma unroll
    for (int s = 0; s < R; ++s) {
      if (!in_bounds[s]) continue;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float v = to_float(x[s].at[i]);
        const bool take = int{best[i] == best[i]} & int{!(v <= best[i])};  // without a branch
        best[i] = take ? v : best[i];
        index[i] = take ? r * R + s : index[i];
      }
    }
  }
  const size_t at = ((n * P + p) * Q + q) * C + c;
  Elements<T, width> out;
  Elements<uint8_t, width> bytes;
#pragma unroll
  for (int i = 0; i < width; ++i)
    out.at[i] = from_float<T>(best[i]), bytes.at[i] = static_cast<uint8_t>(index[i]);
  store(static_cast<T*>(op.out) + at, out);
  store(op.index + at, bytes);
}

// Whether byte k of index is `tap`, tested in 4-byte registers.
template <int width>
__device__ bool is_tap(const Elements<uint8_t, width>& index, int k, unsigned tap) {
  struct Words {
    uint32_t at[width / 4];
  };
  const uint32_t differ = __builtin_bit_cast(Words, index).at[k / 4] ^ tap * 0x01010101u;
  return (differ & 0xFFu << k % 4 * 8) == 0;
}

template <class T>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    max_pool_backward(MaxPoolBackward op, int P, int Q) {
  await_kernel_ahead();
  constexpr int width = Pack<T>::size, side = 2;
  const int H = op.shape.H, W = op.shape.W, C = op.shape.C;
  const Place cell = place<width>(C);
  const int h = side * cell.row, w = side * cell.column, c = cell.c;
  if (h >= H || w >= W) return;
  const size_t n = blockIdx.z;
  const T* dout = static_cast<const T*>(op.dout) + n * P * Q * C + c;
  const uint8_t* index = op.index + n * P * Q * C + c;

  float sum[side][side][width];
#pragma unroll
  for (int i = 0; i < side * side * width; ++i)
    sum[i / width / side][i / width % side][i % width] = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Window (p, q), one of four that reach these elements; the first element is at (top, left) of
    // the window, possibly outside it.
    const int p = cell.row + i / 2, q = cell.column + i % 2;
    if (p >= P || q >= Q) continue;
    const int top = 1 - i / 2 * 2, left = 1 - i % 2 * 2, window = (p * Q + q) * C;
    const auto d = load<width>(dout + window);
    const auto taken = load<width>(index + window);
#pragma unroll
    for (int j = 0; j < side * side; ++j) {
      const int r = top + j / side, s = left + j % side;
      if (r < 0 || r >= R || s < 0 || s >= R) continue;
#pragma unroll
      for (int k = 0; k < width; ++k)
        if (is_tap(taken, k, r * R + s)) sum[j / side][j % side][k] += to_float(d.at[k]);
    }
  }

  T* dinp = static_cast<T*>(op.dinp) + (n * H + h) * W * C + w * C + c;
#pragma unroll
  for (int i = 0; i < side * side; ++i) {
    Elements<T, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out.at[k] = from_float<T>(sum[i / side][i % side][k]);
    if (h + i / side < H && w + i % side < W) store(dinp + (i / side * W + i % side) * C, out);
  }
}

// ---- average pool -------------------------------------------------------------------------------
constexpr int columns = 16, groups = threads / columns, loads_at_once = 4;

template <int width>
struct AverageShared {
  float sum[groups][columns * width];
};

template <class T, int width>
__global__ void __launch_bounds__(threads) average_pool_forward(AveragePoolForward op) {
  await_kernel_ahead();
  auto& sums = shared<AverageShared<width>>().sum;
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int first = static_cast<int>(blockIdx.y) * columns * width, c = first + column * width;
  const int C = op.shape.C, positions = op.shape.positions;
  const size_t n = blockIdx.x;
  if (c < C) {
    const T* inp = static_cast<const T*>(op.inp) + n * positions * C + c;
    float sum[width];
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] = 0;
    for (int position = group; position < positions; position += loads_at_once * groups) {
      Elements<T, width> x[loads_at_once];
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i)
        if (position + i * groups < positions)
          x[i] = load<width>(inp + (position + i * groups) * C);
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i)
        if (position + i * groups < positions) {
#pragma unroll
          for (int k = 0; k < width; ++k) sum[k] += to_float(x[i].at[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < width; ++k) sums[group][column * width + k] = sum[k];
  }
  __syncthreads();
  const int at = first + static_cast<int>(threadIdx.x);
  if (threadIdx.x < columns * width && at < C) {
    float total = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) total += sums[g][threadIdx.x];
    static_cast<T*>(op.out)[n * C + at] = from_float<T>(total / static_cast<float>(positions));
  }
}

template <class T, int width>
__global__ void __launch_bounds__(threads) average_pool_backward(AveragePoolBackward op) {
  await_kernel_ahead();
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int c = (static_cast<int>(blockIdx.y) * columns + column) * width;
  const int C = op.shape.C, positions = op.shape.positions;
  const size_t n = blockIdx.x;
  if (c >= C) return;
  const auto dout = load<width>(static_cast<const T*>(op.dout) + n * C + c);
  Elements<T, width> d;
#pragma unroll
  for (int k = 0; k < width; ++k)
    d.at[k] = from_float<T>(to_float(dout.at[k]) / static_cast<float>(positions));
  T* dinp = static_cast<T*>(op.dinp) + n * positions * C + c;
  for (int position = group; position < positions; position += groups)
    store(dinp + position * C, d);
}

// ---- operations ---------------------------------------------------------------------------------
constexpr int max_blocks = 65535;  // of a grid's y and z

template <class Op>
void require_window(const Op& op, const char* name) {
  const int N = op.shape.N, H = op.shape.H, W = op.shape.W, C = op.shape.C;
  require(N <= max_blocks, name, "N: %d, but at most %d", N, max_blocks);
  require(H <= max_blocks, name, "H: %d, but at most %d", H, max_blocks);
  require(double(H) * W * C <= max_size, name,
          "H W C: an image of %d x %d x %d is more than 2^30 elements", H, W, C);
  require(op.shape.stride <= max_blocks, name, "stride must be in 1-%d", max_blocks);
}

template <class Op>
void require_average(const Op& op, const char* name) {
  const auto [N, positions, C] = op.shape;
  require(double(positions) * C <= max_size, name,
          "positions C: an image of %d x %d is more than 2^30 elements", positions, C);
  require(C <= max_blocks * columns, name, "C: %d, but at most %d", C, max_blocks * columns);
}

// Whether the kernels for ResNet's window support the shape.
template <class T>
bool is_stem(const PoolShape& s) {
  return s.R == R && s.stride == stride && s.padding == padding && in_packs<T>(s.C);
}

dim3 stem_grid(int N, int H, int W, int packs) {
  return dim3(ceil_div(W * packs, row_threads), ceil_div(H, rows), N);
}
template <int width>
dim3 average_grid(const PositionsShape& s) {
  return dim3(s.N, ceil_div(s.C, columns * width));
}

}  // namespace

template <>
void CudaKernels::run(const MaxPoolForward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolForward");
  const int N = op.shape.N, P = op.shape.P(), Q = op.shape.Q(), C = op.shape.C;
  by_dtype(op.dtype, [&]<class T>() {
    if (is_stem<T>(op.shape))
      launch<max_pool_forward<T>>(stem_grid(N, P, Q, C / Pack<T>::size), threads, 0, stream, op, P,
                                  Q);
    else
      launch_each<max_pool_forward_plain<T>>(size_t(op.shape.out_count()), stream, op, P, Q);
  });
}

template <>
void CudaKernels::run(const MaxPoolBackward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolBackward");
  const int N = op.shape.N, H = op.shape.H, W = op.shape.W, C = op.shape.C;
  const int P = op.shape.P(), Q = op.shape.Q();
  by_dtype(op.dtype, [&]<class T>() {
    if (is_stem<T>(op.shape))
      launch<max_pool_backward<T>>(stem_grid(N, ceil_div(H, 2), ceil_div(W, 2), C / Pack<T>::size),
                                   threads, 0, stream, op, P, Q);
    else
      launch_each<max_pool_backward_plain<T>>(size_t(op.shape.inp_count()), stream, op, P, Q);
  });
}

template <>
void CudaKernels::run(const AveragePoolForward& op, cudaStream_t stream) {
  require_average(op, "AveragePoolForward");
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<average_pool_forward<T, width>>(average_grid<width>(op.shape), threads,
                                           sizeof(AverageShared<width>), stream, op);
  });
}

template <>
void CudaKernels::run(const AveragePoolBackward& op, cudaStream_t stream) {
  require_average(op, "AveragePoolBackward");
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<average_pool_backward<T, width>>(average_grid<width>(op.shape), threads, 0, stream, op);
  });
}

template <>
void PlainKernels::run(const MaxPoolForward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolForward");
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<max_pool_forward_plain<T>>(size_t(op.shape.out_count()), stream, op, op.shape.P(),
                                           op.shape.Q());
  });
}

template <>
void PlainKernels::run(const MaxPoolBackward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolBackward");
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<max_pool_backward_plain<T>>(size_t(op.shape.inp_count()), stream, op, op.shape.P(),
                                            op.shape.Q());
  });
}

template <>
void PlainKernels::run(const AveragePoolForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<average_pool_forward_plain<T>>(size_t(op.shape.N) * op.shape.C, stream, op);
  });
}

template <>
void PlainKernels::run(const AveragePoolBackward& op, cudaStream_t stream) {
  const auto [N, positions, C] = op.shape;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<average_pool_backward_plain<T>>(size_t(N) * positions * C, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
