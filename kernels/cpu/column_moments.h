// Mean and variance of each column of a matrix, without cancellation and always in the same order:
// for each block of rows, the mean and then the sum of squared differences from it (M2), merged
// over blocks and then over groups of rows (Chan et al. 1979). Groups are divided among threads.
#pragma once
#include <cstddef>

#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {

constexpr int moments_block = 64;  // rows
constexpr int moments_vectors = 4;

// One column in each lane.
struct Moments {
  simd::vf mean, m2;
};

// Merges the moments of a's and b's rows. b_part: b's share of the rows; b_rows: b's number of
// rows: M2 = M2_a + M2_b + delta^2 rows_a rows_b / rows.
static inline Moments merge(Moments a, Moments b, float b_part, float b_rows) {
  const simd::vf delta = b.mean - a.mean;
  return {a.mean + delta * b_part, a.m2 + b.m2 + delta * delta * ((1 - b_part) * b_rows)};
}

// moments [2, C] = mean and M2 of `rows` rows; at(i) points to row i. The second of moments' two
// rows starts `stride` floats after the first.
template <class At>
void moments_of_rows(float* moments, ptrdiff_t stride, int64_t rows, int C, At at) {
  constexpr int strip = moments_vectors * simd::width;
  for (int64_t first = 0; first < rows; first += moments_block) {
    const int n = static_cast<int>(rows - first < moments_block ? rows - first : moments_block);
    const float part = float(n) / float(first + n);
    const auto keep = [&](auto lanes, int c, Moments found) {
      if (first > 0)
        found = merge({lanes.load(moments + c), lanes.load(moments + stride + c)}, found, part,
                      float(n));
      lanes.store(moments + c, found.mean);
      lanes.store(moments + stride + c, found.m2);
    };
    int c = 0;
    for (; c + strip <= C; c += strip) {
      simd::vf mean[moments_vectors] = {}, m2[moments_vectors] = {};
      for (int row = 0; row < n; ++row)
        for (int v = 0; v < moments_vectors; ++v)
          mean[v] += simd::load(at(first + row) + c + v * simd::width);
      for (int v = 0; v < moments_vectors; ++v) mean[v] *= 1.0f / float(n);
      for (int row = 0; row < n; ++row)
        for (int v = 0; v < moments_vectors; ++v) {
          const simd::vf d = simd::load(at(first + row) + c + v * simd::width) - mean[v];
          m2[v] = simd::fma(d, d, m2[v]);
        }
      for (int v = 0; v < moments_vectors; ++v)
        keep(simd::Whole{}, c + v * simd::width, {mean[v], m2[v]});
    }
    simd::for_each(C - c, [&](int i, auto lanes) {
      simd::vf mean{}, m2{};
      for (int row = 0; row < n; ++row) mean += lanes.load(at(first + row) + c + i);
      mean *= 1.0f / float(n);
      for (int row = 0; row < n; ++row) {
        const simd::vf d = lanes.load(at(first + row) + c + i) - mean;
        m2 = simd::fma(d, d, m2);
      }
      keep(lanes, c + i, {mean, m2});
    });
  }
}

// moments [2, C] = mean and biased variance, from partial [groups, 2, C] = mean and M2 of each
// group; rows_of(group): the number of rows in the group.
template <class RowsOf>
void merge_groups(float* moments, const float* partial, int groups, int C, RowsOf rows_of) {
  constexpr int strip = moments_vectors * simd::width;
#pragma omp parallel for schedule(static)
  for (int begin = 0; begin < C; begin += strip)
    simd::for_each(C - begin < strip ? C - begin : strip, [&](int i, auto lanes) {
      const int c = begin + i;
      Moments sum{lanes.load(partial + c), lanes.load(partial + C + c)};
      int64_t total = rows_of(0);
      for (int group = 1; group < groups; ++group) {
        const float* next = partial + size_t(group) * 2 * size_t(C);
        const int64_t rows = rows_of(group);
        total += rows;
        sum = merge(sum, {lanes.load(next + c), lanes.load(next + C + c)},
                    float(rows) / float(total), float(rows));
      }
      lanes.store(moments + c, sum.mean);
      lanes.store(moments + C + c, sum.m2 * (1.0f / float(total)));
    });
}

// The rows of a matrix in groups of whole blocks.
struct MomentGroups {
  static constexpr int most = 64;
  int64_t rows;

  int count() const {
    const int64_t blocks = (rows + moments_block - 1) / moments_block;
    return static_cast<int>(blocks < most ? blocks : most);
  }
  int64_t begin(int group) const {
    const int64_t blocks = (rows + moments_block - 1) / moments_block;
    const int64_t row = blocks * group / count() * moments_block;
    return row < rows ? row : rows;
  }
  int64_t rows_of(int group) const { return begin(group + 1) - begin(group); }
  size_t partial_count(int C) const { return 2 * size_t(count()) * size_t(C); }
};

// partial [groups, 2, C] = mean and M2 of each group of rows of inp [rows, C]
template <class T>
void group_moments(float* partial, MomentGroups groups, const T* inp, int C) {
#pragma omp parallel for schedule(static)
  for (int group = 0; group < groups.count(); ++group) {
    const int64_t begin = groups.begin(group);
    moments_of_rows(partial + size_t(group) * 2 * size_t(C), C, groups.rows_of(group), C,
                    [&](int64_t row) { return inp + (begin + row) * C; });
  }
}

}  // namespace bv::BAREVISION_ISA
