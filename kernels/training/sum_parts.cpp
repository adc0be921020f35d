// The sum of equal parts in a fixed tree; formulas: kernels.h. An element's partial sums are kept
// like a binary counter's digits: part p is added to as many of them as p + 1 has trailing zeros.
// 4 (parts + 1) bytes per element in fp32: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::vf;

// Sums parts begin .. begin + n of a vector of elements.
template <class Load>
vf tree(int begin, int n, Load load) {
  vf level[7] = {};
  for (int p = 0; p < n; ++p) {
    vf x = load(begin + p);
    int l = 0;
    for (; p >> l & 1; ++l) x = level[l] + x;
    level[l] = x;
  }
  int l = __builtin_ctz(static_cast<unsigned>(n));
  vf sum = level[l];
  while (n >> ++l)
    if (n >> l & 1) sum = level[l] + sum;
  return sum;
}

}  // namespace

template <>
void CpuKernels::run(const SumParts& op) {
  with_any_type(op.dtype, [&]<class T>(T) {
    constexpr int together = SumParts::together;
    constexpr size_t block = 16384;
    const vf factor = simd::set(op.factor);
#pragma omp parallel for schedule(static)
    for (size_t begin = 0; begin < op.count; begin += block) {
      const size_t rest = op.count - begin;
      const T* inp = as<T>(op.inp) + begin;
      float* out = op.out + begin;
      simd::for_each(static_cast<int>(rest < block ? rest : block), [&](int i, auto lanes) {
        const auto load = [&](int p) { return lanes.load(inp + size_t(p) * op.stride + i); };
        vf sum = tree(0, op.parts < together ? op.parts : together, load);
        for (int p = together; p < op.parts; p += together)
          sum += tree(p, op.parts - p < together ? op.parts - p : together, load);
        lanes.store(out + i, sum * factor);
      });
    }
  });
}

}  // namespace bv::BAREVISION_ISA
