// tanh, in place or not:
//   out = tanh(inp),   dinp = dout (1 - out^2)
// Saved for backward: out. Threads divide the rows. Calls the C library's tanh, about 30
// instructions per element. There is one row per image, thousands of elements in all: the time
// doesn't matter.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::vf;

vf tanh(vf x) {
  for (int i = 0; i < simd::width; ++i) x[i] = __builtin_tanhf(x[i]);
  return x;
}

template <class T>
void forward(const TanhForward& op) {
  const auto [rows, C] = op.shape;
#pragma omp parallel for schedule(static)
  for (int row = 0; row < rows; ++row) {
    const T* inp = as<T>(op.inp) + size_t(row) * C;
    T* out = as<T>(op.out) + size_t(row) * C;
    for_each(C, [&](int i, auto lanes) { lanes.store(out + i, tanh(lanes.load(inp + i))); });
  }
}

template <class T>
void backward(const TanhBackward& op) {
  const auto [rows, C] = op.shape;
#pragma omp parallel for schedule(static)
  for (int row = 0; row < rows; ++row) {
    const size_t at = size_t(row) * C;
    const T *dout = as<T>(op.dout) + at, *out = as<T>(op.out) + at;
    T* dinp = as<T>(op.dinp) + at;
    for_each(C, [&](int i, auto lanes) {
      const vf y = lanes.load(out + i);
      lanes.store(dinp + i, lanes.load(dout + i) * (1 - y * y));
    });
  }
}

}  // namespace

template <>
void CpuKernels::run(const TanhForward& op) {
  with_type(op.dtype, [&]<class T>(T) { forward<T>(op); });
}

template <>
void CpuKernels::run(const TanhBackward& op) {
  with_type(op.dtype, [&]<class T>(T) { backward<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
