// Dropout, forward and, on gradients, backward:
//   out = keep ? inp / (1 - drop) : 0
// Element i of image b is kept if uniform(word i % 4 of philox(seed, i / 4, position + b, epoch,
// layer)) >= drop. Nothing is saved: backward draws the same numbers again. A vector of Philox
// counters decides four vectors of elements. Threads divide the images, and the elements of each,
// between them.
// 8 bytes per element; 170 vector instructions draw for 64 elements: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/simd.h"
#include "kernels/philox.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;
using simd::vf;

constexpr int drawn = 4 * simd::width;  // decisions by one vector of counters

// Elements begin .. begin + n of image b; begin % 4 == 0.
template <class T>
void drop_elements(const Dropout& op, int b, int begin, int n) {
  const size_t at = size_t(b) * op.shape.elements + begin;
  const T* inp = as<T>(op.inp) + at;
  T* out = as<T>(op.out) + at;
  const float factor = 1.0f / (1.0f - op.drop);
  for (int done = 0; done < n; done += drawn) {
    simd::vu words[4];
    philox_words(op.params->seed, static_cast<uint32_t>(begin + done) / 4, op.params->position + b,
                 op.params->epoch, op.layer, words);
    for_each(n - done < drawn ? n - done : drawn, [&](int i, auto lanes) {
      const vf x = lanes.load(inp + done + i) * factor;
      const vf kept = simd::select(uniform(words[i / simd::width]) >= op.drop, x, vf{});
      lanes.store(out + done + i, kept);
    });
  }
}

template <class T>
void drop(const Dropout& op) {
  const auto [B, elements] = op.shape;
  constexpr int block = 64 * drawn;
  const int blocks = (elements - 1) / block + 1;
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < B; ++b) {
    for (int k = 0; k < blocks; ++k) {
      const int begin = k * block, rest = elements - begin;
      drop_elements<T>(op, b, begin, rest < block ? rest : block);
    }
  }
}

}  // namespace

template <>
void CpuKernels::run(const Dropout& op) {
  with_type(op.dtype, [&]<class T>(T) { drop<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
