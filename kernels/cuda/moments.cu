// Mean and variance of each column of a matrix in memory. A block owns a stripe of columns
// (column_sums.cuh) and one part of the rows. Its threads sum d = x - shift and d^2, where shift is
// the mean of the part's first rows, so that a large mean doesn't cause cancellation:
//   mean = shift + sum d / n,   M2 = sum d^2 - (sum d)^2 / n
// The last block merges the parts. Limited by memory bandwidth.
#include <algorithm>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/moments.cuh"

namespace bv::BAREVISION_GPU {
namespace {

template <int width>
using Merge = LastBlockOfStripe<MergeMoments, width>;

template <int width>
struct Shared {
  union {
    struct {
      typename Stripe<width>::Shared d, squares;
    } sums;
    typename Merge<width>::Shared merge;
  };
};

// The mean of a part's first four rows, or of all if it has fewer, in `width` columns.
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
    column_moments_of_parts(RowParts parts, MergeMoments moments, const T* inp) {
  await_kernel_ahead();
  using S = Stripe<width>;
  constexpr int ahead = 4;
  const int column = S::column(), rows_of_part = moments.rows_of_part, rows = moments.rows;
  const int C = moments.C;
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
  auto& s = shared<Shared<width>>();
  S::put(d, s.sums.d);
  S::put(squares, s.sums.squares);
  __syncthreads();
  if (const int c = S::channel(static_cast<int>(threadIdx.x), C);
      threadIdx.x < S::columns && c >= 0) {
    const float sum = S::total(s.sums.d), sum_of_squares = S::total(s.sums.squares);
    const float mean = sum / static_cast<float>(end - begin);
    float shift[1];
    find_shift(shift, inp + begin * C + c, end - begin, C);
    moments.save(parts.partial + int64_t{blockIdx.y} * 2 * C + c,
                 {0, shift[0] + mean, sum_of_squares - sum * mean});
  }
  merge_stripes<width>(moments, parts, s.merge);
}

// Rows per part, at least 64, for about as many blocks as the chip runs concurrently.
int rows_of_part(int stripes, const DeviceProps& props, int rows) {
  return std::max(64, ceil_div(rows, ceil_div(8 * props.sms, stripes)));
}

}  // namespace

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
              count = ceil_div(a.rows, part);
    const RowParts parts = row_parts(props, a.workspace, count, a.C, stripes);
    const MergeMoments merge{.moments = a.moments, .rows_of_part = part, .rows = a.rows, .C = a.C};
    launch<column_moments_of_parts<T, width>>(dim3(stripes, count), S::threads,
                                              sizeof(Shared<width>), stream, parts, merge,
                                              static_cast<const T*>(a.inp));
  });
}

}  // namespace bv::BAREVISION_GPU
