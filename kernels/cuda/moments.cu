// Mean and variance of each column of a matrix (moments.cuh has the plan).
// Of a matrix in memory: a block owns a stripe of columns (column_sums.cuh) and one part of the
// rows. Its threads add d = x - shift and d^2, where shift is the mean of the part's first rows, so
// that only digits of the deviation cancel; memory is the limit:
//   mean = shift + sum d / n,   M2 = sum d^2 - (sum d)^2 / n
// A block merges up to 64 parts of 32 columns: 8 threads per column merge 8 parts each, and one
// merges these 8. The result replaces the block's first part, for the next round to merge.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/moments.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- merging ------------------------------------------------------------------------------------
constexpr int merge_columns = warp_size, merge_lanes = 8, merge_parts = 64;

struct MergeShared {
  Moments lanes[merge_lanes][merge_columns];
};

// Merges every `stride`-th part. last: writes mean and variance to moments; else mean and M2 to the
// first part's place.
__global__ void __launch_bounds__(merge_columns* merge_lanes)
    merge_parts_of_columns(MergeMoments a, int stride, bool last) {
  auto& s = shared<MergeShared>();
  const int lane = threadIdx.x / merge_columns, in = threadIdx.x % merge_columns;
  const int column = blockIdx.y * merge_columns + in;
  const int first = blockIdx.x * merge_parts;  // in units of stride
  Moments sum{0, 0, 0};
  if (column < a.C)
#pragma unroll 4
    for (int i = 0; i < merge_parts / merge_lanes; ++i) {
      const int64_t part = int64_t{first + lane * (merge_parts / merge_lanes) + i} * stride;
      if (part >= a.parts) break;
      const int64_t begin = part * a.rows_of_part, left = a.rows - begin,
                    rows = int64_t{a.rows_of_part} * stride;
      const float* at = a.partial + part * 2 * a.C + column;
      merge(sum, {static_cast<float>(left < rows ? left : rows), at[0], at[a.C]});
    }
  s.lanes[lane][in] = sum;
  __syncthreads();
  if (lane > 0 || column >= a.C) return;
#pragma unroll
  for (int k = 1; k < merge_lanes; ++k) merge(sum, s.lanes[k][in]);
  float* to = last ? a.moments : a.partial + int64_t{first} * stride * 2 * a.C;
  to[column] = sum.mean;
  to[a.C + column] = last ? sum.m2 / static_cast<float>(a.rows) : sum.m2;
}

// ---- of a matrix in memory ----------------------------------------------------------------------
template <int width>
struct PartSums {
  typename Stripe<width>::Shared d, squares;
};

// The mean of a part's first four rows, or fewer if it has fewer, in `width` columns.
template <int width, class T>
__device__ void find_shift(float (&shift)[width], const T* first, int64_t rows, int C) {
  const int count = rows < 4 ? static_cast<int>(rows) : 4;
  Elements<T, width> x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = load<width>(first + (k < count ? int64_t{k} * C : 0));
#pragma unroll
  for (int i = 0; i < width; ++i) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += k < count ? to_float(x[k].at[i]) : 0;
    shift[i] = sum / static_cast<float>(count);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(256)
    column_moments_of_parts(float* partial, const T* inp, int rows_of_part, int rows, int C) {
  using S = Stripe<width>;
  constexpr int ahead = 4;
  const int column = S::column();
  const int64_t begin = int64_t{blockIdx.y} * rows_of_part;
  const int64_t end = begin + rows_of_part < rows ? begin + rows_of_part : rows;
  float d[width] = {}, squares[width] = {};
  if (column < C) {
    float shift[width];
    find_shift(shift, inp + begin * C + column, end - begin, C);
    for (int64_t row = begin + threadIdx.x / S::lanes; row < end; row += ahead * S::rows) {
      Elements<T, width> x[ahead];
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        x[k] = load<width>(inp + (row + k * S::rows < end ? row + k * S::rows : row) * C + column);
#pragma unroll
      for (int k = 0; k < ahead; ++k)
        if (row + k * S::rows < end)
#pragma unroll
          for (int i = 0; i < width; ++i) {
            const float difference = to_float(x[k].at[i]) - shift[i];
            d[i] += difference;
            squares[i] = fmaf(difference, difference, squares[i]);
          }
    }
  }
  auto& s = shared<PartSums<width>>();
  S::put(d, s.d);
  S::put(squares, s.squares);
  __syncthreads();
  const int c = blockIdx.x * S::columns + threadIdx.x;
  if (threadIdx.x >= S::columns || c >= C) return;
  const float sum = S::total(s.d), sum_of_squares = S::total(s.squares);
  const float mean = sum / static_cast<float>(end - begin);
  float* to = partial + int64_t{blockIdx.y} * 2 * C + c;
  float shift[1];
  find_shift(shift, inp + begin * C + c, end - begin, C);
  to[0] = shift[0] + mean;
  to[C] = sum_of_squares - sum * mean;
}

// At least 64, for about as many blocks as the chip runs at a time.
int rows_of_part(int stripes, const DeviceProps& props, int rows) {
  return std::max(64, ceil_div(rows, ceil_div(8 * props.sms, stripes)));
}

}  // namespace

void merge_moments(const MergeMoments& a, cudaStream_t stream) {
  for (int64_t stride = 1, parts = a.parts;; stride *= merge_parts) {
    const auto groups = static_cast<unsigned>(ceil_div(parts, merge_parts));
    const dim3 grid(groups, ceil_div(a.C, merge_columns));
    launch<merge_parts_of_columns>(grid, merge_columns * merge_lanes, sizeof(MergeShared), stream,
                                   a, static_cast<int>(stride), groups == 1);
    if (groups == 1) return;
    parts = groups;
  }
}

size_t column_moments_bytes(const DeviceProps& props, DType dtype, int rows, int C) {
  size_t bytes = 0;
  by_width(dtype, C, [&]<class T, int width>() {
    const int part = rows_of_part(ceil_div(C, Stripe<width>::columns), props, rows);
    bytes = sizeof(float) * 2 * static_cast<size_t>(ceil_div(rows, part)) * C;
  });
  return bytes;
}

void column_moments(const DeviceProps& props, const ColumnMoments& a, cudaStream_t stream) {
  by_width(a.dtype, a.C, [&]<class T, int width>() {
    using S = Stripe<width>;
    const int stripes = ceil_div(a.C, S::columns), part = rows_of_part(stripes, props, a.rows),
              parts = ceil_div(a.rows, part);
    float* partial = static_cast<float*>(a.workspace);
    launch<column_moments_of_parts<T, width>>(dim3(stripes, parts), S::threads,
                                              sizeof(PartSums<width>), stream, partial,
                                              static_cast<const T*>(a.inp), part, a.rows, a.C);
    merge_moments(
        {.moments = a.moments, .partial = partial, .rows_of_part = part, .rows = a.rows, .C = a.C},
        stream);
  });
}

}  // namespace bv::BAREVISION_GPU
