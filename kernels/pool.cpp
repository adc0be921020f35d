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

template <class Op>
void require_window(const Op& op, const char* name) {
  require(op.N > 0 && op.H > 0 && op.W > 0 && op.C > 0, name, "N, H, W and C must be positive");
  require(op.R > 0 && op.R <= 16, name, "R must be in 1-16, that an index fits a byte");
  require(op.stride > 0, name, "stride must be positive");
  require(op.padding >= 0 && op.padding <= op.R / 2, name, "padding must be in 0 .. R / 2");
  require(op.H + 2 * op.padding >= op.R && op.W + 2 * op.padding >= op.R, name,
          "H and W: the padded image is smaller than R");
  require(op.dtype == DType::fp32, name, "dtype must be fp32 on this device");
}

// ---- max pool -----------------------------------------------------------------------------------
// The taps of a window, of R from `at` on, that lie in 0 .. extent - 1. At least one does.
struct Taps {
  int begin, end;
};
Taps taps_inside(int at, int R, int extent) { return {larger(0, -at), smaller(R, extent - at)}; }

void max_pool_row(const MaxPoolForward& op, int n, int p) {
  const int top = p * op.stride - op.padding;
  const Taps rows = taps_inside(top, op.R, op.H);
  const size_t C = op.C, row = size_t(op.W) * C;
  const float* image = static_cast<const float*>(op.inp) + size_t(n) * op.H * row;
  const size_t first_out = (size_t(n) * op.P() + p) * op.Q() * C;
  for (int q = 0, Q = op.Q(); q < Q; ++q) {
    const int left = q * op.stride - op.padding;
    const Taps columns = taps_inside(left, op.R, op.W);
    const float* window = image + (top + rows.begin) * ptrdiff_t(row) + left * ptrdiff_t(C);
    float* out = static_cast<float*>(op.out) + first_out + q * C;
    uint8_t* index = op.index + first_out + q * C;
    for_each(op.C, [&](int c, auto lanes) {
      vf best = simd::set(-__builtin_inff());
      vi which = seti(rows.begin * op.R + columns.begin);
      const float* taps = window + c;
      for (int r = rows.begin; r < rows.end; ++r, taps += row)
        for (int s = columns.begin; s < columns.end; ++s)
          simd::take_larger(best, which, lanes.load(taps + s * C), r * op.R + s);
      lanes.store(out + c, best);
      lanes.store_integers(index + c, which);
    });
  }
}

void max_pool_backward_row(const MaxPoolBackward& op, int n, int h) {
  const int P = op.P(), Q = op.Q(), below = h + op.padding;
  const int first_p = below < op.R ? 0 : (below - op.R) / op.stride + 1;
  const int end_p = smaller(below / op.stride + 1, P);
  const size_t C = op.C;
  const float* douts = static_cast<const float*>(op.dout) + size_t(n) * P * Q * C;
  const uint8_t* indices = op.index + size_t(n) * P * Q * C;
  float* dinp = static_cast<float*>(op.dinp) + (size_t(n) * op.H + h) * op.W * C;
  int first_q = 0, end_q = 0;  // the windows that column w lies in
  for (int w = 0; w < op.W; ++w, dinp += C) {
    const int right = w + op.padding;
    while (end_q < Q && end_q * op.stride <= right) ++end_q;
    while (first_q < end_q && first_q * op.stride + op.R <= right) ++first_q;
    for_each(op.C, [&](int c, auto lanes) {
      vf sum{};
      for (int p = first_p; p < end_p; ++p)
        for (int q = first_q; q < end_q; ++q) {
          const int tap = (below - p * op.stride) * op.R + right - q * op.stride;
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
  const float* inp = static_cast<const float*>(op.inp) + size_t(n) * op.positions * op.C;
  float* out = static_cast<float*>(op.out) + size_t(n) * op.C;
  __builtin_memcpy(out, inp, op.C * sizeof(float));
  for (int position = 1; position < op.positions; ++position) {
    inp += op.C;
    for_each(op.C, [&](int c, auto lanes) {
      lanes.store(out + c, lanes.load(out + c) + lanes.load(inp + c));
    });
  }
  const vf count = simd::set(float(op.positions));
  for_each(op.C, [&](int c, auto lanes) { lanes.store(out + c, lanes.load(out + c) / count); });
}

void average_pool_backward_image(const AveragePoolBackward& op, int n) {
  const float* dout = static_cast<const float*>(op.dout) + size_t(n) * op.C;
  float* dinp = static_cast<float*>(op.dinp) + size_t(n) * op.positions * op.C;
  const vf count = simd::set(float(op.positions));
  for_each(op.C, [&](int c, auto lanes) { lanes.store(dinp + c, lanes.load(dout + c) / count); });
  for (int position = 1; position < op.positions; ++position)
    __builtin_memcpy(dinp + size_t(position) * op.C, dinp, op.C * sizeof(float));
}

template <class Op>
void require_average(const Op& op, const char* name) {
  require(op.N > 0 && op.positions > 0 && op.C > 0, name, "N, positions and C must be positive");
  require(op.dtype == DType::fp32, name, "dtype must be fp32 on this device");
}

}  // namespace

void CpuKernels::run(const MaxPoolForward& op, Stream) {
  require_window(op, "MaxPoolForward");
  require(op.out && op.index && op.inp, "MaxPoolForward", "out, index and inp must not be null");
  const int P = op.P();
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < op.N; ++n)
    for (int p = 0; p < P; ++p) max_pool_row(op, n, p);
}

void CpuKernels::run(const MaxPoolBackward& op, Stream) {
  require_window(op, "MaxPoolBackward");
  require(op.dinp && op.dout && op.index, "MaxPoolBackward",
          "dinp, dout and index must not be null");
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < op.N; ++n)
    for (int h = 0; h < op.H; ++h) max_pool_backward_row(op, n, h);
}

void CpuKernels::run(const AveragePoolForward& op, Stream) {
  require_average(op, "AveragePoolForward");
  require(op.out && op.inp, "AveragePoolForward", "out and inp must not be null");
#pragma omp parallel for schedule(static)
  for (int n = 0; n < op.N; ++n) average_pool_image(op, n);
}

void CpuKernels::run(const AveragePoolBackward& op, Stream) {
  require_average(op, "AveragePoolBackward");
  require(op.dinp && op.dout, "AveragePoolBackward", "dinp and dout must not be null");
#pragma omp parallel for schedule(static)
  for (int n = 0; n < op.N; ++n) average_pool_backward_image(op, n);
}

}  // namespace bv::BAREVISION_ISA
