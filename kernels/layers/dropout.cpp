// Dropout, forward and, on gradients, backward:
//   out = keep ? inp / (1 - drop) : 0
// Element i of image b is kept if uniform(word i % 4 of philox(seed, i / 4, position + b, epoch,
// layer)) >= drop. Nothing is saved: backward draws the same numbers again. A vector of Philox
// counters yields the words for four vectors of elements. Threads divide the images, and an image's
// elements, among themselves.
// 8 bytes per element, and 170 vector instructions per 64 elements to draw: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/random.h"

namespace bv::BAREVISION_ISA {
namespace {

template <class T>
void drop(const Dropout& op) {
  const auto [B, elements] = op.shape;
  constexpr int block = 64 * 4 * simd::width;
  const int blocks = (elements - 1) / block + 1;
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < B; ++b) {
    for (int k = 0; k < blocks; ++k) {
      const int begin = k * block, rest = elements - begin;
      const size_t at = size_t(b) * elements + begin;
      ImageDropout{*op.params, b, op.layer, op.drop}.run(
          as<T>(op.out) + at, as<T>(op.inp) + at, uint32_t(begin), rest < block ? rest : block);
    }
  }
}

}  // namespace

template <>
void CpuKernels::run(const Dropout& op) {
  with_type(op.dtype, [&]<class T>(T) { drop<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
