// A convolution's weight gradient as products over rows: for each tap
//   dweight[k, tap, c] (+)= sum over the pixels of out where the tap is in bounds of
//                               dout[pixel, k] inp[the tap's pixel, c]
// Pixels are processed in blocks of a few hundred, whose dout and inp stay in the caches for all
// taps. A unit of work computes a range of k and one panel of columns of dweight. If dweight is
// small, the images are divided into groups with their own partial sums. Pixels are added in order.
#pragma once
#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/row_products.h"
#include "kernels/layers.h"

namespace bv::BAREVISION_ISA {

struct WeightRows {
  static constexpr int max_rows = 512, max_k = 22 * row_block, min_units = 16;
  ConvShape s;

  int taps() const { return s.R * s.S; }
  size_t count() const { return size_t(s.K) * size_t(taps()) * size_t(s.C); }
  // Blocks of pixels: n images are divided first, then an image's lines, then a line's pixels.
  Parts images(int n) const { return parts(n, s.P() * s.Q()); }
  Parts lines() const { return parts(s.P(), s.Q()); }
  Parts pixels() const { return parts(s.Q(), 1); }

  Parts k_parts() const { return {s.K, max_k}; }
  Panels panels() const { return Panels(s.C); }
  // The number of groups of images, each with several blocks of pixels.
  int groups() const {
    const int per_group = k_parts().count * panels().count;
    const int wanted = (min_units + per_group - 1) / per_group;
    const int64_t blocks = (int64_t{s.N} * s.P() * s.Q()) / (4 * max_rows);
    const int max_groups = blocks < 1 ? 1 : blocks < s.N ? static_cast<int>(blocks) : s.N;
    return wanted < max_groups ? wanted : max_groups;
  }
  size_t partial_count() const { return groups() > 1 ? size_t(groups()) * count() : 0; }

 private:
  static Parts parts(int count, int size) { return {count, size < max_rows ? max_rows / size : 1}; }
};

struct Range {
  int begin, end;

  int count() const { return end > begin ? end - begin : 0; }
  Range within(Range r) const {
    return {begin > r.begin ? begin : r.begin, end < r.end ? end : r.end};
  }
};

// The positions p at which the tap is in bounds: 0 <= p * stride - padding + tap < H.
static inline Range reach(int P, int H, int tap, int stride, int padding) {
  const int before = padding - tap;
  return Range{before > 0 ? (before + stride - 1) / stride : 0,
               H - 1 + before < 0 ? 0 : (H - 1 + before) / stride + 1}
      .within({0, P});
}

class WeightUnit {
 public:
  WeightUnit(const WeightRows& rows, float* dweight, const float* dout, const float* inp, int panel,
             Range k)
      : rows_(rows), dweight_(dweight), dout_(dout), inp_(inp), panel_(panel), k_(k) {}

  void run(Range images, bool accumulate) {
    if (!accumulate)
      for (int k = k_.begin; k < k_.end; ++k)
        for (int tap = 0; tap < rows_.taps(); ++tap)
          __builtin_memset(at(k, tap), 0, size_t(used_) * sizeof(float));
    const Parts n = rows_.images(images.count()), p = rows_.lines(), q = rows_.pixels();
    for (int block = 0; block < n.count * p.count * q.count; ++block) {
      const int i = block / q.count / p.count, j = block / q.count % p.count, m = block % q.count;
      n_ = {images.begin + n.begin(i), images.begin + n.begin(i + 1)};
      p_ = {p.begin(j), p.begin(j + 1)};
      q_ = {q.begin(m), q.begin(m + 1)};
      for (int tap = 0; tap < rows_.taps(); ++tap) add(tap);
    }
  }

 private:
  float* at(int k, int tap) const {
    return dweight_ + (ptrdiff_t{k} * rows_.taps() + tap) * s_.C + column_;
  }

  void add(int tap) {
    const int r = tap / s_.S, s = tap % s_.S;
    const Range p = reach(s_.P(), s_.H, r, s_.stride, s_.padding).within(p_);
    const Range q = reach(s_.Q(), s_.W, s, s_.stride, s_.padding).within(q_);
    const ptrdiff_t dout_step = s_.K, inp_step = ptrdiff_t{s_.stride} * s_.C;
    int count = 0;
    for (int n = n_.begin; n < n_.end; ++n)
      for (int i = p.begin; i < p.end; ++i) {
        const int h = i * s_.stride - s_.padding + r, w = q.begin * s_.stride - s_.padding + s;
        const float* dout = dout_ + ((int64_t{n} * s_.P() + i) * s_.Q() + q.begin) * s_.K;
        const float* inp = inp_ + ((int64_t{n} * s_.H + h) * s_.W + w) * s_.C;
        for (int j = 0; j < q.count(); ++j, ++count, dout += dout_step, inp += inp_step)
          dout_rows_[count] = dout, inp_rows_[count] = inp;
      }
    if (count == 0) return;
    if (used_ < width_)
      for (int row = 0; row < count; ++row) pack(row);
    multiply(tap, count);
  }
  // Copies the panel's columns of a row, padded to whole vectors.
  void pack(int row) {
    float* packed = packed_ + row * width_;
    for (int c = 0; c < width_; ++c) packed[c] = c < used_ ? inp_rows_[row][column_ + c] : 0;
    inp_rows_[row] = packed - column_;
  }

  void multiply(int tap, int count) {
    const ptrdiff_t stride = ptrdiff_t{rows_.taps()} * s_.C;
    for (int block = 0; block < k_blocks_.count; ++block) {
      const int k = k_.begin + k_blocks_.begin(block);
      const int n = k_.begin + k_blocks_.begin(block + 1) - k;
      const auto product =
          block_of(n, width_ / simd::width, []<int r, int v>() { return columns_block<r, v>; });
      float* c = at(k, tap);
      if (used_ == width_) {
        product(c, stride, {dout_rows_, inp_rows_, count}, k, column_);
        continue;
      }
      float tile[row_block * panel_vectors * simd::width];  // whole vectors
      for (int i = 0; i < n; ++i)
        __builtin_memcpy(tile + i * width_, c + i * stride, size_t(used_) * sizeof(float));
      product(tile, width_, {dout_rows_, inp_rows_, count}, k, column_);
      for (int i = 0; i < n; ++i)
        __builtin_memcpy(c + i * stride, tile + i * width_, size_t(used_) * sizeof(float));
    }
  }

  const WeightRows& rows_;
  float* dweight_;
  const float *dout_, *inp_;
  int panel_;
  Range k_;
  const ConvShape& s_ = rows_.s;
  Panels panels_ = rows_.panels();
  int width_ = panels_.width(panel_), used_ = panels_.used(panel_), column_ = panels_.begin(panel_);
  Parts k_blocks_{k_.count(), row_block};
  Range n_{}, p_{}, q_{};
  const float* dout_rows_[WeightRows::max_rows];
  const float* inp_rows_[WeightRows::max_rows];
  alignas(64) float packed_[WeightRows::max_rows * panel_vectors * simd::width];
};

// partial [rows.partial_count()]
static inline void conv_weight_rows(const WeightRows& rows, float* dweight, float* partial,
                                    const float* dout, const float* inp, bool accumulate) {
  const int groups = rows.groups(), panels = rows.panels().count;
  const Parts k = rows.k_parts(), images(rows.s.N, (rows.s.N + groups - 1) / groups);
#pragma omp parallel for schedule(dynamic)
  for (int item = 0; item < images.count * panels * k.count; ++item) {
    const int part = item % k.count, panel = item / k.count % panels;
    const int group = item / k.count / panels;
    float* to = groups > 1 ? partial + size_t(group) * rows.count() : dweight;
    WeightUnit unit(rows, to, dout, inp, panel, {k.begin(part), k.begin(part + 1)});
    unit.run({images.begin(group), images.begin(group + 1)}, accumulate && groups == 1);
  }
  if (groups > 1)
    add_groups(dweight, partial, images.count, rows.count(), static_cast<int>(rows.count()),
               accumulate);
}

}  // namespace bv::BAREVISION_ISA
