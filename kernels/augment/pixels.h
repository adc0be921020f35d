// The arithmetic of the image operations (kernels/types.h), which the CPU and the GPU share: in
// integers, and for the hue in floating point, without a multiply-add that a compiler could fuse,
// so that all devices agree.
#pragma once
#include "kernels/philox.h"
#include "kernels/types.h"

namespace bv {
namespace {  // so that builds for different instruction sets share no code

struct Pixel {
  int r, g, b;
};

BV_HOST_DEVICE inline int clamp_to_byte(int x) { return x < 0 ? 0 : x > 255 ? 255 : x; }

// Adding 128, 1/512 of a level, compensates for a rounded `factor`: otherwise 2.0 * 10 may be 19.
BV_HOST_DEVICE inline int blend(int from, int to, int factor) {
  return clamp_to_byte((65536 * from + factor * (to - from) + 128) >> 16);
}

// ITU-R 601, as in Pillow's mode L.
BV_HOST_DEVICE inline int grey(const Pixel& p) {
  return (19595 * p.r + 38470 * p.g + 7471 * p.b + 32768) >> 16;
}

// ---- operations that map each value by a table --------------------------------------------------
BV_HOST_DEVICE inline bool is_counted(ImageOpKind kind) {
  return kind == ImageOpKind::contrast || kind == ImageOpKind::autocontrast ||
         kind == ImageOpKind::equalize;
}
BV_HOST_DEVICE inline bool is_by_table(ImageOpKind kind) {
  return kind >= ImageOpKind::invert && kind <= ImageOpKind::equalize;
}

BV_HOST_DEVICE inline int mapped(const ImageOp& op, int value) {
  const int n = op.at[0], sum = value + n;
  switch (op.kind) {
    case ImageOpKind::invert:
      return 255 - value;
    case ImageOpKind::posterize:
      return value & n;
    case ImageOpKind::solarize:
      return value < n ? value : 255 - value;
    case ImageOpKind::solarize_add:
      return value >= 128 ? value : sum > 255 ? 255 : sum;
    case ImageOpKind::brightness:
      return blend(0, value, n);
    default:
      return value;
  }
}

// The table of one channel. counts: the histogram of its values; for contrast, of grey values.
BV_HOST_DEVICE inline void make_table(const ImageOp& op, const uint32_t* counts,
                                      uint8_t* __restrict table) {
  if (!is_counted(op.kind)) {
    for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(mapped(op, i));
    return;
  }
  uint64_t sum = 0;
  uint32_t pixels = 0;
  int low = 255, high = 0;
  for (int i = 0; i < 256; ++i) {
    const uint32_t count = counts[i];
    if (count == 0) continue;
    if (pixels == 0) low = i;
    high = i;
    pixels += count;
    sum += uint64_t{count} * static_cast<uint32_t>(i);
  }
  if (op.kind == ImageOpKind::contrast) {
    const int mean = static_cast<int>((2 * sum + pixels) / (2 * uint64_t{pixels}));
    for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(blend(mean, i, op.at[0]));
    return;
  }
  const uint32_t step = (pixels - counts[high]) / 255;
  const bool stretch = op.kind == ImageOpKind::autocontrast && high > low;
  const bool equalize = op.kind == ImageOpKind::equalize && step > 0;
  uint32_t n = step / 2;
  for (int i = 0; i < 256; ++i) {
    int value = i;
    if (stretch) value = i <= low ? 0 : (i - low) * 255 / (high - low);
    if (equalize) value = static_cast<int>(n / step);
    table[i] = static_cast<uint8_t>(value < 255 ? value : 255);
    n += counts[i];
  }
}

// ---- operations on a pixel, or on its neighbours ------------------------------------------------
BV_HOST_DEVICE inline int sharpened(int c, int neighbours, int factor) {
  return blend((2 * (neighbours + 5 * c) + 13) / 26, c, factor);
}

BV_HOST_DEVICE inline Pixel colored(const Pixel& p, int factor) {
  const int from = grey(p);
  return {blend(from, p.r, factor), blend(from, p.g, factor), blend(from, p.b, factor)};
}

// Converts to Pillow's 8-bit HSV, rotates the hue and converts back.
BV_HOST_DEVICE inline Pixel hue_rotated(const Pixel& p, int by) {
  const int rg = p.r > p.g ? p.r : p.g, rg_low = p.r < p.g ? p.r : p.g;
  const int value = rg > p.b ? rg : p.b, low = rg_low < p.b ? rg_low : p.b;
  if (value == low) return p;
  const auto range = static_cast<float>(value - low);
  const float r = static_cast<float>(value - p.r) / range;
  const float g = static_cast<float>(value - p.g) / range;
  const float b = static_cast<float>(value - p.b) / range;
  const auto sector = static_cast<float>(p.r == value   ? double{b - g}
                                         : p.g == value ? 2.0 + r - b
                                                        : 4.0 + g - r);
  const double turn = sector / 6.0 + 1;
  const auto hue = static_cast<float>(turn - static_cast<int>(turn));
  const int saturation = static_cast<int>(range / static_cast<float>(value) * 255.0);

  const int h = (static_cast<int>(hue * 255.0) + by) & 255;
  const int which = 6 * h / 255, into = 6 * h - 255 * which;
  if (saturation == 0) return {value, value, value};
  // value (1 - part / 65025), rounded
  const auto less = [value](int part) {
    return static_cast<int>((uint32_t(2 * value) * uint32_t(65025 - part) + 65025u) / 130050u);
  };
  const int p0 = less(255 * saturation), q = less(saturation * into);
  const int t = less(saturation * (255 - into));
  switch (which % 6) {
    case 0:
      return {value, t, p0};
    case 1:
      return {q, value, p0};
    case 2:
      return {p0, value, t};
    case 3:
      return {p0, q, value};
    case 4:
      return {t, p0, value};
    default:
      return {value, p0, q};
  }
}

}  // namespace
}  // namespace bv
