// Groups the positions of a convolution's result along one axis by the filter taps that are in
// bounds there, so that taps on padding cost nothing: 5 of 9 with a 3 x 3 filter on a 2 x 2 map.
#pragma once

namespace bv::BAREVISION_ISA {

// Position i = 0 .. count-1 is at begin + i * step of the result. Its tap j = 0 .. taps-1 is the
// filter's first_tap + j * tap_step and reads the source at from + i * from_step + j *
// source_step.
struct Axis {
  int begin, count, step;
  int first_tap, taps, tap_step;
  int from, from_step, source_step;
};

struct Axes {
  static constexpr int max_count = 64;
  int count = 0;
  Axis axis[max_count];

  // Adds a position to the last Axis if it continues that Axis, else as a new Axis.
  void add(Axis next) {
    if (next.taps <= 0) next.taps = next.first_tap = next.from = 0;
    if (count > 0) {
      Axis& last = axis[count - 1];
      if (last.first_tap == next.first_tap && last.taps == next.taps &&
          last.begin + last.count * last.step == next.begin &&
          (next.taps == 0 || last.from + last.count * last.from_step == next.from)) {
        ++last.count;
        return;
      }
    }
    if (count < max_count) axis[count] = next;
    ++count;
  }
  bool fits() const { return count <= max_count; }
};

// out [P], computed from inp [H]
static inline Axes axes_of_out(int P, int H, int R, int stride, int padding) {
  Axes axes;
  for (int p = 0; p < P; ++p) {
    const int h = p * stride - padding;
    const int first = h < 0 ? -h : 0, end = H - h < R ? H - h : R;
    axes.add({.begin = p,
              .count = 1,
              .step = 1,
              .first_tap = first,
              .taps = end - first,
              .tap_step = 1,
              .from = h + first,
              .from_step = stride,
              .source_step = 1});
  }
  return axes;
}

// dinp [H], computed from dout [P]: one phase of the stride after the other
static inline Axes axes_of_inp(int P, int H, int R, int stride, int padding) {
  Axes axes;
  for (int phase = 0; phase < stride; ++phase)
    for (int h = phase; h < H; h += stride) {
      int first = (h + padding) % stride;
      while (first < R && (h + padding - first) / stride >= P) first += stride;
      int taps = 0;
      for (int r = first; r < R && h + padding - r >= 0; r += stride) ++taps;
      axes.add({.begin = h,
                .count = 1,
                .step = stride,
                .first_tap = first,
                .taps = taps,
                .tap_step = stride,
                .from = (h + padding - first) / stride,
                .from_step = 1,
                .source_step = -1});
    }
  return axes;
}

}  // namespace bv::BAREVISION_ISA
