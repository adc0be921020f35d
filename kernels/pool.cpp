// Max pool over windows of R x R, and the mean over all positions of an image.
//   forward   out = largest of the window, index = r R + s of where it lies; of equals the first, a
//             NaN before every number
//   backward  dinp = sum of dout over the windows whose index names this element
// Saved for backward: index, one byte an element. Both are gathers: a vector holds channels, and
// goes over the taps of its window, or over the windows that its element lies in, in their order.
// Threads share out the rows of what is written, so that no sum depends on their number.
// A few instructions for each tap of a window, and 9 bytes an element of out, 4 of inp: memory is the
// limit; what neighbouring windows share comes from L1 and L2.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
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
// The taps of a window, of R from `at` on, that lie in 0 .. extent - 1. At least one does.
struct Taps {
  int begin, end;
};
Taps taps_inside(int at, int R, int extent) { return {larger(0, -at), smaller(R, extent - at)}; }

void max_pool_row(const MaxPoolForward& op, int n, int p) {
  const int top = p * op.shape.stride - op.shape.padding;
  const Taps rows = taps_inside(top, op.shape.R, op.shape.H);
  const size_t C = op.shape.C, row = size_t(op.shape.W) * C;
  const float* image = static_cast<const float*>(op.inp) + size_t(n) * op.shape.H * row;
  const size_t first_out = (size_t(n) * op.shape.P() + p) * op.shape.Q() * C;
  for (int q = 0, Q = op.shape.Q(); q < Q; ++q) {
    const int left = q * op.shape.stride - op.shape.padding;
    const Taps columns = taps_inside(left, op.shape.R, op.shape.W);
    const float* window = image + (top + rows.begin) * ptrdiff_t(row) + left * ptrdiff_t(C);
    float* out = static_cast<float*>(op.out) + first_out + q * C;
    uint8_t* index = op.index + first_out + q * C;
    for_each(op.shape.C, [&](int c, auto lanes) {
      vf best = simd::set(-__builtin_inff());
      vi which = seti(rows.begin * op.shape.R + columns.begin);
      const float* taps = window + c;
      for (int r = rows.begin; r < rows.end; ++r, taps += row)
        for (int s = columns.begin; s < columns.end; ++s)
          simd::take_larger(best, which, lanes.load(taps + s * C), r * op.shape.R + s);
      lanes.store(out + c, best);
      lanes.store_integers(index + c, which);
    });
  }
}

void max_pool_backward_row(const MaxPoolBackward& op, int n, int h) {
  const int P = op.shape.P(), Q = op.shape.Q(), below = h + op.shape.padding;
  const int first_p = below < op.shape.R ? 0 : (below - op.shape.R) / op.shape.stride + 1;
  const int end_p = smaller(below / op.shape.stride + 1, P);
  const size_t C = op.shape.C;
  const float* douts = static_cast<const float*>(op.dout) + size_t(n) * P * Q * C;
  const uint8_t* indices = op.index + size_t(n) * P * Q * C;
  float* dinp = static_cast<float*>(op.dinp) + (size_t(n) * op.shape.H + h) * op.shape.W * C;
  int first_q = 0, end_q = 0;  // the windows that column w lies in
  for (int w = 0; w < op.shape.W; ++w, dinp += C) {
    const int right = w + op.shape.padding;
    while (end_q < Q && end_q * op.shape.stride <= right) ++end_q;
    while (first_q < end_q && first_q * op.shape.stride + op.shape.R <= right) ++first_q;
    for_each(op.shape.C, [&](int c, auto lanes) {
      vf sum{};
      for (int p = first_p; p < end_p; ++p)
        for (int q = first_q; q < end_q; ++q) {
          const int tap = (below - p * op.shape.stride) * op.shape.R + right - q * op.shape.stride;
          const size_t at = (size_t(p) * Q + q) * C + c;
          const vf d = lanes.load(douts + at);
          sum += simd::select(lanes.load_integers(indices + at) == seti(tap), d, vf{});
        }
      lanes.store(dinp + c, sum);
    });
  }
}

// ---- average pool -------------------------------------------------------------------------------
// Goes through an image as it lies in memory; the sums stay in L1.
void average_pool_image(const AveragePoolForward& op, int n) {
  const float* inp =
      static_cast<const float*>(op.inp) + size_t(n) * op.shape.positions * op.shape.C;
  float* out = static_cast<float*>(op.out) + size_t(n) * op.shape.C;
  __builtin_memcpy(out, inp, op.shape.C * sizeof(float));
  for (int position = 1; position < op.shape.positions; ++position) {
    inp += op.shape.C;
    for_each(op.shape.C, [&](int c, auto lanes) {
      lanes.store(out + c, lanes.load(out + c) + lanes.load(inp + c));
    });
  }
  const vf count = simd::set(float(op.shape.positions));
  for_each(op.shape.C,
           [&](int c, auto lanes) { lanes.store(out + c, lanes.load(out + c) / count); });
}

void average_pool_backward_image(const AveragePoolBackward& op, int n) {
  const float* dout = static_cast<const float*>(op.dout) + size_t(n) * op.shape.C;
  float* dinp = static_cast<float*>(op.dinp) + size_t(n) * op.shape.positions * op.shape.C;
  const vf count = simd::set(float(op.shape.positions));
  for_each(op.shape.C,
           [&](int c, auto lanes) { lanes.store(dinp + c, lanes.load(dout + c) / count); });
  for (int position = 1; position < op.shape.positions; ++position)
    __builtin_memcpy(dinp + size_t(position) * op.shape.C, dinp, op.shape.C * sizeof(float));
}

}  // namespace

template <>
void CpuKernels::run(const MaxPoolForward& op) {
  const int P = op.shape.P();
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < op.shape.N; ++n)
    for (int p = 0; p < P; ++p) max_pool_row(op, n, p);
}

template <>
void CpuKernels::run(const MaxPoolBackward& op) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < op.shape.N; ++n)
    for (int h = 0; h < op.shape.H; ++h) max_pool_backward_row(op, n, h);
}

template <>
void CpuKernels::run(const AveragePoolForward& op) {
#pragma omp parallel for schedule(static)
  for (int n = 0; n < op.shape.N; ++n) average_pool_image(op, n);
}

template <>
void CpuKernels::run(const AveragePoolBackward& op) {
#pragma omp parallel for schedule(static)
  for (int n = 0; n < op.shape.N; ++n) average_pool_backward_image(op, n);
}

}  // namespace bv::BAREVISION_ISA
