// A convolution's out, or its input gradient, as products over rows: for each class of pixels that
// have the same taps in bounds (conv_axis.h),
//   result[pixel, :] = (add[pixel, :] +) sum over taps of  source[pixel of the tap, :] weight[tap]
// Padding is never multiplied, and the source is not copied. A thread computes a unit (up to
// unit_rows pixels) or a range of its columns, and then its moments while it is in the caches.
#pragma once
#include <cstdint>

#include "kernels/conv/conv_axis.h"
#include "kernels/cpu/column_moments.h"
#include "kernels/cpu/row_products.h"

namespace bv::BAREVISION_ISA {

struct ConvRows {
  int N, H, W, C;                 // result [N, H, W, C]
  int source_H, source_W, depth;  // source [N, source_H, source_W, depth]
  int taps, S;                    // the filter's R * S taps, S per row
  Axes y, x;

  bool fits() const { return y.fits() && x.fits(); }
  Panels panels() const { return Panels(C); }
  // weight packed: [panel, tap, depth, columns of the panel]
  size_t packed_count() const {
    return size_t(taps) * size_t(depth) * size_t(round_up(C, simd::width));
  }
  bool uses_tap(int tap) const { return uses(y, tap / S) && uses(x, tap % S); }

 private:
  static bool uses(const Axes& axes, int tap) {
    for (int i = 0; i < axes.count; ++i) {
      const Axis& axis = axes.axis[i];
      const int last = axis.first_tap + (axis.taps - 1) * axis.tap_step;
      if (axis.taps > 0 && tap >= axis.first_tap && tap <= last &&
          (tap - axis.first_tap) % axis.tap_step == 0)
        return true;
    }
    return false;
  }
};

// Units of neighbouring pixels of one class. If there are fewer than min_items units, each is split
// into ranges of panels.
struct ConvUnits {
  static constexpr int unit_rows = 44 * row_block, min_items = 32;
  const ConvRows& conv;
  int count = 0, splits;

  explicit ConvUnits(const ConvRows& c) : conv(c) {
    for (int y = 0; y < c.y.count; ++y)
      for (int x = 0; x < c.x.count; ++x) count += units(rows(y, x));
    const int max_splits = conv.panels().count, wanted = (min_items + count - 1) / count;
    splits = wanted < max_splits ? wanted : max_splits;
  }
  int64_t rows(int y, int x) const {
    return int64_t{conv.N} * conv.y.axis[y].count * conv.x.axis[x].count;
  }
  static int units(int64_t rows) { return static_cast<int>((rows + unit_rows - 1) / unit_rows); }

  struct Unit {
    int y, x;
    int64_t begin, end;  // rows of the class
  };
  Unit at(int unit) const {
    int y = 0, x = 0;
    for (int here; unit >= (here = units(rows(y, x))); unit -= here)
      if (++x == conv.x.count) x = 0, ++y;
    const int64_t all = rows(y, x), parts = units(all);
    return {y, x, all * unit / parts, all * (unit + 1) / parts};
  }
  int64_t rows_of(int unit) const {
    const Unit u = at(unit);
    return u.end - u.begin;
  }
  size_t partial_count() const { return 2 * size_t(count) * size_t(conv.C); }
};

// Iterates over the runs of a class of pixels, chunk by chunk.
class ConvChunks {
 public:
  ConvChunks(const ConvRows& conv, const Axis& y, const Axis& x)
      : conv_(conv), y_(y), x_(x), joined_(x.source_step == 1 && x.tap_step == 1) {
    const int length = joined_ ? x.taps * conv.depth : conv.depth;
    pieces_ = length > 0 ? Parts(length, Chunk::max_depth) : Parts(1, 1);
    runs_ = x.taps == 0 ? 0 : y.taps * (joined_ ? 1 : x.taps);
  }
  bool more() const { return run_ < runs_; }
  Chunk next() {
    Chunk chunk;
    for (; more(); advance()) {
      const int begin = pieces_.begin(piece_), depth = pieces_.begin(piece_ + 1) - begin;
      if (!chunk.takes(depth)) break;
      const int across = joined_ ? 1 : x_.taps, j = run_ / across, i = run_ % across;
      const int tap = (y_.first_tap + j * y_.tap_step) * conv_.S + x_.first_tap + i * x_.tap_step;
      const ptrdiff_t pixel = ptrdiff_t{j} * y_.source_step * conv_.source_W + i * x_.source_step;
      chunk.add({pixel * conv_.depth + begin, tap * conv_.depth + begin, depth});
    }
    return chunk;
  }

 private:
  void advance() {
    if (++piece_ == pieces_.count) piece_ = 0, ++run_;
  }

  const ConvRows& conv_;
  const Axis &y_, &x_;
  bool joined_;  // neighbouring taps read neighbouring pixels, so a row of taps is one run
  Parts pieces_{1, 1};
  int runs_, run_ = 0, piece_ = 0;
};

struct ConvRowsTensors {
  float* result;
  const float* add = nullptr;  // or null; may be result
  const float* source;
  const float* packed;
  float* partial = nullptr;  // [units, 2, C] mean and M2 of each unit's pixels; or null
};

static inline void conv_unit(const ConvRows& conv, const ConvUnits& units,
                             const ConvRowsTensors& tensors, int index, int split) {
  const ConvUnits::Unit unit = units.at(index);
  const Axis &y = conv.y.axis[unit.y], &x = conv.x.axis[unit.x];
  const int count = static_cast<int>(unit.end - unit.begin);
  float* c[ConvUnits::unit_rows];
  const float *a[ConvUnits::unit_rows], *from[ConvUnits::unit_rows];
  int j = static_cast<int>(unit.begin % x.count);
  int i = static_cast<int>(unit.begin / x.count % y.count);
  int64_t n = unit.begin / x.count / y.count;
  for (int row = 0; row < count; ++row) {
    const int64_t to = (n * conv.H + y.begin + i * y.step) * conv.W + x.begin + j * x.step;
    c[row] = tensors.result + to * conv.C;
    if (tensors.add) from[row] = tensors.add + to * conv.C;
    a[row] = tensors.source + ((n * conv.source_H + y.from + i * y.from_step) * conv.source_W +
                               x.from + j * x.from_step) *
                                  conv.depth;
    if (++j == x.count) {
      j = 0;
      if (++i == y.count) i = 0, ++n;
    }
  }
  const Panels panels = conv.panels();
  const int first = panels.count * split / units.splits;
  const int end = panels.count * (split + 1) / units.splits;
  ConvChunks chunks(conv, y, x);
  const float* const* before = tensors.add ? from : nullptr;
  do {
    const Chunk chunk = chunks.next();
    for (int panel = first; panel < end; ++panel)
      multiply_rows({c, before, a}, count, panels, panel, chunk,
                    tensors.packed + ptrdiff_t{conv.taps} * conv.depth * panels.begin(panel));
    before = c;
  } while (chunks.more());
  if (tensors.partial) {
    const int column = panels.begin(first);
    moments_of_rows(tensors.partial + ptrdiff_t(index) * 2 * conv.C + column, conv.C, count,
                    panels.begin(end - 1) + panels.used(end - 1) - column,
                    [&](int64_t row) { return c[row] + column; });
  }
}

static inline void conv_rows(const ConvRows& conv, const ConvUnits& units,
                             const ConvRowsTensors& tensors) {
#pragma omp parallel for schedule(dynamic)
  for (int item = 0; item < units.count * units.splits; ++item)
    conv_unit(conv, units, tensors, item / units.splits, item % units.splits);
}

// Calls f(the tap's part of a packed panel, the panel's first column, width and used columns, tap)
// in parallel, for each panel and each tap in use.
template <class F>
void for_each_panel(float* packed, const ConvRows& conv, F f) {
  const Panels panels = conv.panels();
#pragma omp parallel for schedule(static)
  for (int item = 0; item < panels.count * conv.taps; ++item) {
    const int panel = item / conv.taps, tap = item % conv.taps;
    if (conv.uses_tap(tap))
      f(packed +
            (ptrdiff_t{conv.taps} * panels.begin(panel) + ptrdiff_t{tap} * panels.width(panel)) *
                conv.depth,
        panels.begin(panel), panels.width(panel), panels.used(panel), tap);
  }
}

// For out: packed[panel, tap, c, k] = weight[k, tap, c]
static inline void pack_for_out(float* packed, const float* weight, const ConvRows& conv) {
  const ptrdiff_t filter = ptrdiff_t{conv.taps} * conv.depth;
  for_each_panel(packed, conv, [&](float* to, int k, int width, int used, int tap) {
    pack_panel_columns(to, weight + k * filter + ptrdiff_t{tap} * conv.depth, filter, conv.depth,
                       width, used);
  });
}

// For dinp: packed[panel, tap, k, c] = weight[k, tap, c]
static inline void pack_for_inp(float* packed, const float* weight, const ConvRows& conv) {
  for_each_panel(packed, conv, [&](float* to, int c, int width, int used, int tap) {
    pack_panel_rows(to, weight + ptrdiff_t{tap} * conv.C + c, ptrdiff_t{conv.taps} * conv.C,
                    conv.depth, width, used);
  });
}

}  // namespace bv::BAREVISION_ISA
