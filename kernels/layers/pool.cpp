// Max pool over windows of R x R, and the mean over all positions of an image.
//   forward   out = maximum of the window, index = r R + s of its first maximum; NaN beats every
//             number
//   backward  dinp = sum of dout over the windows whose index selects this element
// All =. Saved for backward: index, one byte per element. Both directions gather: for a vector of
// channels, a loop visits the taps of the window, or the windows that reach the element, in order.
// Threads divide the rows of the output, so no sum depends on their number.
// Memory is the limit: a few instructions per tap; neighbouring windows share their taps in L1 and
// L2.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::seti;
using simd::vf;
using simd::vi;

int larger(int a, int b) { return a > b ? a : b; }
int smaller(int a, int b) { return a < b ? a : b; }

// ---- max pool -----------------------------------------------------------------------------------
// A window has R taps, the first at position `at`. These are the taps whose positions are in
// 0 .. extent - 1: at least one.
struct Taps {
  int begin, end;
};
Taps taps_in_bounds(int at, int R, int extent) { return {larger(0, -at), smaller(R, extent - at)}; }

template <class T>
void max_pool_row(const MaxPoolForward& op, int n, int p) {
  const auto [N, H, W, C, R, stride, padding] = op.shape;
  const int Q = op.shape.Q(), top = p * stride - padding;
  const Taps rows = taps_in_bounds(top, R, H);
  const size_t row = size_t(W) * C;
  const T* image = as<T>(op.inp) + size_t(n) * H * row;
  const size_t first_out = (size_t(n) * op.shape.P() + p) * Q * C;
  for (int q = 0; q < Q; ++q) {
    const int left = q * stride - padding;
    const Taps columns = taps_in_bounds(left, R, W);
    const T* window = image + (top + rows.begin) * ptrdiff_t(row) + left * ptrdiff_t(C);
    T* out = as<T>(op.out) + first_out + size_t(q) * C;
    uint8_t* index = op.index + first_out + size_t(q) * C;
    for_each(C, [&](int c, auto lanes) {
      vf best = simd::set(-__builtin_inff());
      vi which = seti(rows.begin * R + columns.begin);
      const T* taps = window + c;
      for (int r = rows.begin; r < rows.end; ++r, taps += row)
        for (int s = columns.begin; s < columns.end; ++s)
          simd::take_larger(best, which, lanes.load(taps + s * C), r * R + s);
      lanes.store(out + c, best);
      lanes.store_integers(index + c, which);
    });
  }
}

template <class T>
void max_pool_backward_row(const MaxPoolBackward& op, int n, int h) {
  const auto [N, H, W, C, R, stride, padding] = op.shape;
  const int P = op.shape.P(), Q = op.shape.Q(), y = h + padding;
  const int first_p = y < R ? 0 : (y - R) / stride + 1, end_p = smaller(y / stride + 1, P);
  const T* douts = as<T>(op.dout) + size_t(n) * P * Q * C;
  const uint8_t* indices = op.index + size_t(n) * P * Q * C;
  T* dinp = as<T>(op.dinp) + (size_t(n) * H + h) * W * C;
  int first_q = 0, end_q = 0;  // the windows that reach column w
  for (int w = 0; w < W; ++w, dinp += C) {
    const int x = w + padding;
    while (end_q < Q && end_q * stride <= x) ++end_q;
    while (first_q < end_q && first_q * stride + R <= x) ++first_q;
    for_each(C, [&](int c, auto lanes) {
      vf sum{};
      for (int p = first_p; p < end_p; ++p)
        for (int q = first_q; q < end_q; ++q) {
          const int tap = (y - p * stride) * R + x - q * stride;
          const size_t at = (size_t(p) * Q + q) * C + c;
          const vf d = lanes.load(douts + at);
          sum += simd::select(lanes.load_integers(indices + at) == seti(tap), d, vf{});
        }
      lanes.store(dinp + c, sum);
    });
  }
}

// ---- average pool -------------------------------------------------------------------------------
template <class T>
void average_pool_image(const AveragePoolForward& op, int n) {
  const auto [N, positions, C] = op.shape;
  const T* inp = as<T>(op.inp) + size_t(n) * positions * C;
  T* out = as<T>(op.out) + size_t(n) * C;
  const vf count = simd::set(float(positions));
  for_each(C, [&](int c, auto lanes) {
    vf sum = lanes.load(inp + c);
    for (int position = 1; position < positions; ++position)
      sum += lanes.load(inp + size_t(position) * C + c);
    lanes.store(out + c, sum / count);
  });
}

template <class T>
void average_pool_backward_image(const AveragePoolBackward& op, int n) {
  const auto [N, positions, C] = op.shape;
  const T* dout = as<T>(op.dout) + size_t(n) * C;
  T* dinp = as<T>(op.dinp) + size_t(n) * positions * C;
  const vf count = simd::set(float(positions));
  for_each(C, [&](int c, auto lanes) { lanes.store(dinp + c, lanes.load(dout + c) / count); });
  for (int position = 1; position < positions; ++position)
    __builtin_memcpy(dinp + size_t(position) * C, dinp, C * sizeof(T));
}

}  // namespace

template <>
void CpuKernels::run(const MaxPoolForward& op) {
  with_type(op.dtype, [&]<class T>(T) {
    const int P = op.shape.P();
#pragma omp parallel for collapse(2) schedule(static)
    for (int n = 0; n < op.shape.N; ++n)
      for (int p = 0; p < P; ++p) max_pool_row<T>(op, n, p);
  });
}

template <>
void CpuKernels::run(const MaxPoolBackward& op) {
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for collapse(2) schedule(static)
    for (int n = 0; n < op.shape.N; ++n)
      for (int h = 0; h < op.shape.H; ++h) max_pool_backward_row<T>(op, n, h);
  });
}

template <>
void CpuKernels::run(const AveragePoolForward& op) {
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < op.shape.N; ++n) average_pool_image<T>(op, n);
  });
}

template <>
void CpuKernels::run(const AveragePoolBackward& op) {
  with_type(op.dtype, [&]<class T>(T) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < op.shape.N; ++n) average_pool_backward_image<T>(op, n);
  });
}

}  // namespace bv::BAREVISION_ISA
