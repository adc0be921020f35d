// Max pool over windows of R x R, and the mean over all positions of an image.
//   max pool      out = largest of the window, index = r R + s of where it lies; of equals the first,
//                 a NaN before every number;   dinp = sum of dout over the windows whose index names
//                 this element, in their order
//   average pool  out[n, c] = sum over positions of inp / positions,   dinp = dout / positions
// Saved for backward: index, one byte an element. NHWC: a thread has 16 bytes of a pixel's channels
// (one element where C has tails), and 8 or 4 of index with them. Nothing is scattered: no atomics.
//
// Max pool, forward: a thread makes one pack of out, with the loads of three taps under way; a block
// has 4 rows of out, so that L1 has most of what windows share. Backward: a thread makes 2 x 2 packs
// of dinp and goes over the windows that reach them, each read once; in 3 x 3, stride 2, these are
// four whatever the place, so that no warp diverges inside an image. These sizes, the only ones of
// ResNet, are known to the compiler: without, backward takes 1.5 times the instructions.
// Average pool: a block has 16 columns of packs of one image, and 16 groups of threads share out the
// positions; their sums are added in the groups' order.
//
// An H200 (4.3 TB/s, 132 SMs, 1.75 GHz) moves 19 bytes a clock and SM, and issues 128 threads'
// instructions in it. 3 x 3, stride 2, in 16 bits: forward has 88 bytes a pack of out, time for 600
// instructions, and takes 650 (each of 72 elements: a conversion, two comparisons for order and NaN,
// two selections); backward has 22 bytes a pack of dinp, time for 150, and takes 135. So both stand
// where memory and instructions limit alike; in fp32, with half the elements for these bytes, and in
// the average pools memory does. At most 64 registers: 4 blocks of 256 threads on an SM of sm_80 and
// sm_90, each thread with up to 48 bytes coming: 48 KB, where the memory's latency asks for 24.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 256, blocks_per_sm = 4;

// ---- max pool -----------------------------------------------------------------------------------
// A block takes `row_threads` neighbouring packs of each of `rows` rows of an image. The last
// dimensions of both, pixels and packs of channels, are one to it.
constexpr int row_threads = 64, rows = threads / row_threads;

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

// `stem`: the sizes of ResNet's own, so that the compiler knows them: 3 x 3, stride 2, padding 1.
template <bool stem, class Op>
__device__ Op with_sizes(Op op) {
  if (stem) op.shape.R = 3, op.shape.stride = 2, op.shape.padding = 1;
  return op;
}

template <class T, int width, bool stem>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    max_pool_forward(MaxPoolForward of, int P, int Q) {
  const MaxPoolForward op = with_sizes<stem>(of);
  const auto [p, q, c] = place<width>(op.shape.C);
  if (p >= P || q >= Q) return;
  const size_t n = blockIdx.z;
  const int top = p * op.shape.stride - op.shape.padding,
            left = q * op.shape.stride - op.shape.padding;
  const int first = max(0, -top), last = min(op.shape.R, op.shape.H - top) - 1;
  const unsigned end = min(left + op.shape.R, op.shape.W);  // of the columns
  const int row = op.shape.W * op.shape.C;
  const T* taps = static_cast<const T*>(op.inp) + n * op.shape.H * row + (top + first) * row + c;

  float best[width];
  int which[width];
#pragma unroll
  for (int i = 0; i < width; ++i)
    best[i] = -INFINITY, which[i] = first * op.shape.R + max(0, -left);
  for (int r = first; r <= last; ++r, taps += row) {
    constexpr int at_once = 3;
    for (int begin = 0; begin < op.shape.R; begin += at_once) {
      Elements<T, width> x[at_once];
      bool inside[at_once];
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        const unsigned w = left + begin + k;  // large where it is negative
        inside[k] = w < end;
        if (inside[k]) x[k] = load<width>(taps + w * op.shape.C);
      }
#pragma unroll
      for (int k = 0; k < at_once; ++k) {
        if (!inside[k]) continue;
        const int tap = r * op.shape.R + begin + k;
#pragma unroll
        for (int i = 0; i < width; ++i) {
          const float v = to_float(x[k].at[i]);
          const bool take = int{best[i] == best[i]} & int{!(v <= best[i])};  // without a branch
          best[i] = take ? v : best[i];
          which[i] = take ? tap : which[i];
        }
      }
    }
  }
  const size_t at = ((n * P + p) * Q + q) * op.shape.C + c;
  Elements<T, width> out;
  Elements<uint8_t, width> index;
#pragma unroll
  for (int i = 0; i < width; ++i)
    out.at[i] = from_float<T>(best[i]), index.at[i] = static_cast<uint8_t>(which[i]);
  store(static_cast<T*>(op.out) + at, out);
  store(op.index + at, index);
}

// Whether byte k is `tap`; four bytes lie in a register.
template <int width>
__device__ bool is_tap(const Elements<uint8_t, width>& index, int k, unsigned tap) {
  if constexpr (width % 4 == 0) {
    struct Words {
      uint32_t at[width / 4];
    };
    const uint32_t differ = __builtin_bit_cast(Words, index).at[k / 4] ^ tap * 0x01010101u;
    return (differ & 0xFFu << k % 4 * 8) == 0;
  } else {
    return index.at[k] == tap;
  }
}

template <class T, int width, bool stem>
__global__ void __launch_bounds__(threads, blocks_per_sm)
    max_pool_backward(MaxPoolBackward of, int P, int Q) {
  const MaxPoolBackward op = with_sizes<stem>(of);
  constexpr int side = 2;
  const Place cell = place<width>(op.shape.C);
  const int h = side * cell.row, w = side * cell.column, c = cell.c;
  if (h >= op.shape.H || w >= op.shape.W) return;
  const size_t n = blockIdx.z;
  const T* dout = static_cast<const T*>(op.dout) + n * P * Q * op.shape.C + c;
  const uint8_t* index = op.index + n * P * Q * op.shape.C + c;

  float sum[side][side][width];
#pragma unroll
  for (int i = 0; i < side * side * width; ++i)
    sum[i / width / side][i / width % side][i % width] = 0;
  // A window, of which the first of the elements here is tap (top, left), inside it or not.
  const auto add = [&](int p, int q, int top, int left) {
    const int window = (p * Q + q) * op.shape.C;
    const auto d = load<width>(dout + window);
    const auto taken = load<width>(index + window);
#pragma unroll
    for (int i = 0; i < side * side; ++i) {
      const int r = top + i / side, s = left + i % side;
      if (r < 0 || r >= op.shape.R || s < 0 || s >= op.shape.R) continue;
#pragma unroll
      for (int k = 0; k < width; ++k)
        if (is_tap(taken, k, r * op.shape.R + s)) sum[i / side][i % side][k] += to_float(d.at[k]);
    }
  };
  if constexpr (stem) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int p = cell.row + i / 2, q = cell.column + i % 2;
      if (p < P && q < Q) add(p, q, 1 - i / 2 * 2, 1 - i % 2 * 2);
    }
  } else {
    const unsigned R = op.shape.R, stride = op.shape.stride, below = h + op.shape.padding,
                   right = w + op.shape.padding;
    const int first_p = below < R ? 0 : (below - R) / stride + 1;
    const int first_q = right < R ? 0 : (right - R) / stride + 1;
    const int end_p = min(static_cast<int>((below + side - 1) / stride + 1), P);
    const int end_q = min(static_cast<int>((right + side - 1) / stride + 1), Q);
    for (int p = first_p; p < end_p; ++p)
      for (int q = first_q; q < end_q; ++q) add(p, q, below - p * stride, right - q * stride);
  }

  T* dinp = static_cast<T*>(op.dinp) + (n * op.shape.H + h) * op.shape.W * op.shape.C +
            w * op.shape.C + c;
#pragma unroll
  for (int i = 0; i < side * side; ++i) {
    Elements<T, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out.at[k] = from_float<T>(sum[i / side][i % side][k]);
    if (h + i / side < op.shape.H && w + i % side < op.shape.W)
      store(dinp + (i / side * op.shape.W + i % side) * op.shape.C, out);
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
  auto& sums = shared<AverageShared<width>>().sum;
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int first = static_cast<int>(blockIdx.y) * columns * width, c = first + column * width;
  const size_t n = blockIdx.x;
  if (c < op.shape.C) {
    const T* inp = static_cast<const T*>(op.inp) + n * op.shape.positions * op.shape.C + c;
    float sum[width];
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] = 0;
    for (int position = group; position < op.shape.positions; position += loads_at_once * groups) {
      Elements<T, width> x[loads_at_once];
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i)
        if (position + i * groups < op.shape.positions)
          x[i] = load<width>(inp + (position + i * groups) * op.shape.C);
#pragma unroll
      for (int i = 0; i < loads_at_once; ++i)
        if (position + i * groups < op.shape.positions) {
#pragma unroll
          for (int k = 0; k < width; ++k) sum[k] += to_float(x[i].at[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < width; ++k) sums[group][column * width + k] = sum[k];
  }
  __syncthreads();
  const int at = first + static_cast<int>(threadIdx.x);
  if (threadIdx.x < columns * width && at < op.shape.C) {
    float total = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) total += sums[g][threadIdx.x];
    static_cast<T*>(op.out)[n * op.shape.C + at] =
        from_float<T>(total / static_cast<float>(op.shape.positions));
  }
}

template <class T, int width>
__global__ void __launch_bounds__(threads) average_pool_backward(AveragePoolBackward op) {
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int c = (static_cast<int>(blockIdx.y) * columns + column) * width;
  const size_t n = blockIdx.x;
  if (c >= op.shape.C) return;
  const auto dout = load<width>(static_cast<const T*>(op.dout) + n * op.shape.C + c);
  Elements<T, width> d;
#pragma unroll
  for (int k = 0; k < width; ++k)
    d.at[k] = from_float<T>(to_float(dout.at[k]) / static_cast<float>(op.shape.positions));
  T* dinp = static_cast<T*>(op.dinp) + n * op.shape.positions * op.shape.C + c;
  for (int position = group; position < op.shape.positions; position += groups)
    store(dinp + position * op.shape.C, d);
}

// ---- operations ---------------------------------------------------------------------------------
constexpr int max_blocks = 65535;  // of a grid's y and z
constexpr int max_elements = 1 << 30;

template <class Op>
void require_window(const Op& op, const char* name) {
  require(op.shape.N <= max_blocks, name, "N: %d, but at most %d", op.shape.N, max_blocks);
  require(op.shape.H <= max_blocks, name, "H: %d, but at most %d", op.shape.H, max_blocks);
  require(double(op.shape.H) * op.shape.W * op.shape.C <= max_elements, name,
          "H W C: an image of %d x %d x %d is more than 2^30 elements", op.shape.H, op.shape.W,
          op.shape.C);
  require(op.shape.stride > 0 && op.shape.stride <= max_blocks, name, "stride must be in 1-%d",
          max_blocks);
}

template <class Op>
void require_average(const Op& op, const char* name) {
  require(double(op.shape.positions) * op.shape.C <= max_elements, name,
          "positions C: an image of %d x %d is more than 2^30 elements", op.shape.positions,
          op.shape.C);
  require(op.shape.C <= max_blocks * columns, name, "C: %d, but at most %d", op.shape.C,
          max_blocks * columns);
}

// f<T, width, stem>()
template <class Op, class F>
void by_window(const Op& op, F f) {
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    constexpr bool packs = width > 1;
    if (packs && op.shape.R == 3 && op.shape.stride == 2 && op.shape.padding == 1)
      f.template operator()<T, width, packs>();
    else
      f.template operator()<T, width, false>();
  });
}

// For N images of H x W threads for each pack of C channels.
dim3 grid_of(int N, int H, int W, int packs) {
  return dim3(ceil_div(W * packs, row_threads), ceil_div(H, rows), N);
}

}  // namespace

template <>
void CudaKernels::run(const MaxPoolForward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolForward");
  const int P = op.shape.P(), Q = op.shape.Q();
  by_window(op, [&]<class T, int width, bool stem>() {
    launch<max_pool_forward<T, width, stem>>(grid_of(op.shape.N, P, Q, op.shape.C / width), threads,
                                             0, stream, op, P, Q);
  });
}

template <>
void CudaKernels::run(const MaxPoolBackward& op, cudaStream_t stream) {
  require_window(op, "MaxPoolBackward");
  by_window(op, [&]<class T, int width, bool stem>() {
    launch<max_pool_backward<T, width, stem>>(
        grid_of(op.shape.N, ceil_div(op.shape.H, 2), ceil_div(op.shape.W, 2), op.shape.C / width),
        threads, 0, stream, op, op.shape.P(), op.shape.Q());
  });
}

template <>
void CudaKernels::run(const AveragePoolForward& op, cudaStream_t stream) {
  require_average(op, "AveragePoolForward");
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<average_pool_forward<T, width>>(dim3(op.shape.N, ceil_div(op.shape.C, columns * width)),
                                           threads, sizeof(AverageShared<width>), stream, op);
  });
}

template <>
void CudaKernels::run(const AveragePoolBackward& op, cudaStream_t stream) {
  require_average(op, "AveragePoolBackward");
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<average_pool_backward<T, width>>(dim3(op.shape.N, ceil_div(op.shape.C, columns * width)),
                                            threads, 0, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
