// Sums over the rows of a matrix, for the gradients of weights and biases. The rows are divided
// into a fixed number of groups; each has partial sums in the workspace, which are added in order.
#pragma once
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {

struct RowGroups {
  static constexpr int most = 64;
  int rows;

  int count() const { return rows < most ? rows : most; }
  int begin(int group) const { return static_cast<int>(int64_t{rows} * group / count()); }
};

// partial [groups, stride] = each group's sums: add(row, sums) adds a row.
template <class Add>
static inline void sum_groups(RowGroups groups, float* partial, size_t stride, Add add) {
#pragma omp parallel for schedule(static)
  for (int group = 0; group < groups.count(); ++group) {
    float* sums = partial + group * stride;
    __builtin_memset(sums, 0, stride * sizeof(float));
    for (int row = groups.begin(group); row < groups.begin(group + 1); ++row) add(row, sums);
  }
}

// out[c] (+)= sum over groups of partial[group * stride + c]
static inline void add_groups(float* out, const float* partial, int groups, size_t stride, int C,
                              bool accumulate) {
  constexpr int block = 4 * simd::width;
#pragma omp parallel for schedule(static)
  for (int begin = 0; begin < C; begin += block) {
    const int n = C - begin < block ? C - begin : block;
    simd::for_each(n, [&](int i, auto lanes) {
      const int c = begin + i;
      simd::vf sum = accumulate ? lanes.load(out + c) : simd::vf{};
      for (int group = 0; group < groups; ++group) sum += lanes.load(partial + group * stride + c);
      lanes.store(out + c, sum);
    });
  }
}

}  // namespace bv::BAREVISION_ISA
