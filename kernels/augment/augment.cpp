// Applies to each training image the operation that its ImageOp (kernels/types.h) specifies. The
// first layer of operations reads the stored images through their crops.
//
// Threads divide the images. A row is read in place, or copied first if it must be cropped or
// flipped. Operations with a table look each value up; contrast, autocontrast and equalize read the
// image twice, first to count its values. affine reads pixel by pixel. 1 byte in and 1 out per
// element: instructions are the limit.
#include "kernels/augment/pixels.h"
#include "kernels/cpu/cpu_kernels.h"

namespace bv::BAREVISION_ISA {
namespace {

constexpr int max_row = 3 * 8192;  // describe() checks it

// A stored image seen through its crop.
struct Source {
  const uint8_t* pixels;
  int height, width, size;
  Crop crop;
  bool as_stored;

  Source(const AugmentImages& op, int b)
      : pixels(op.images + size_t(b) * op.shape.height * op.shape.width * 3),
        height(op.shape.height),
        width(op.shape.width),
        size(op.shape.size),
        crop(op.crops ? op.crops[b] : Crop{}),
        as_stored(height == size && width == size && !crop.top && !crop.left && !crop.flip &&
                  !crop.upside_down) {}

  // Null outside the stored image.
  const uint8_t* at(int y, int x) const {
    const int row = crop.top + (crop.upside_down ? size - 1 - y : y);
    const int column = crop.left + (crop.flip ? size - 1 - x : x);
    if (row < 0 || row >= height || column < 0 || column >= width) return nullptr;
    return pixels + (size_t(row) * width + column) * 3;
  }

  // The `size` pixels of row y: as stored, if the crop changes nothing, or copied to `buffer`.
  const uint8_t* row(int y, uint8_t* buffer) const {
    if (as_stored) return pixels + size_t(y) * width * 3;
    const int from = crop.top + (crop.upside_down ? size - 1 - y : y);
    // Columns begin .. end of the result, before flipping, are inside the stored image.
    const int begin = crop.left < 0 ? (-crop.left < size ? -crop.left : size) : 0;
    const int rest = width - crop.left, end = rest < size ? rest : size;
    if (from < 0 || from >= height || begin >= end) {
      __builtin_memset(buffer, 0, size_t(3) * size);
      return buffer;
    }
    const uint8_t* inp = pixels + (size_t(from) * width + crop.left + begin) * 3;
    if (!crop.flip) {
      __builtin_memset(buffer, 0, size_t(3) * begin);
      __builtin_memcpy(buffer + 3 * begin, inp, size_t(3) * (end - begin));
      __builtin_memset(buffer + 3 * end, 0, size_t(3) * (size - end));
      return buffer;
    }
    __builtin_memset(buffer, 0, size_t(3) * (size - end));
    uint8_t* out = buffer + 3 * (size - 1 - begin);
    for (int i = begin; i < end; ++i, inp += 3, out -= 3)
      out[0] = inp[0], out[1] = inp[1], out[2] = inp[2];
    __builtin_memset(buffer + 3 * (size - begin), 0, size_t(3) * begin);
    return buffer;
  }
};

void by_table(const Source& source, const ImageOp& what, uint8_t* out, uint8_t* buffer) {
  const int size = source.size;
  uint32_t counts[3][256] = {};
  if (is_counted(what.kind)) {
    const bool of_grey = what.kind == ImageOpKind::contrast;
    for (int y = 0; y < size; ++y) {
      const uint8_t* p = source.row(y, buffer);
      if (of_grey)
        for (int x = 0; x < size; ++x, p += 3) ++counts[0][grey({p[0], p[1], p[2]})];
      else
        for (int x = 0; x < size; ++x, p += 3)
          ++counts[0][p[0]], ++counts[1][p[1]], ++counts[2][p[2]];
    }
    if (of_grey) {
      __builtin_memcpy(counts[1], counts[0], sizeof counts[0]);
      __builtin_memcpy(counts[2], counts[0], sizeof counts[0]);
    }
  }
  uint8_t tables[3][256];
  for (int c = 0; c < 3; ++c) make_table(what, counts[c], tables[c]);
  for (int y = 0; y < size; ++y) {
    const uint8_t* p = source.row(y, buffer);
    for (int x = 0; x < size; ++x, p += 3, out += 3)
      out[0] = tables[0][p[0]], out[1] = tables[1][p[1]], out[2] = tables[2][p[2]];
  }
}

void affine(const Source& source, const ImageOp& what, uint8_t* out) {
  const int size = source.size;
  const auto inside = [size](int x) { return static_cast<unsigned>(x) < unsigned(size); };
  for (int y = 0; y < size; ++y) {
    int column = what.at[1] * y + what.at[2], row = what.at[4] * y + what.at[5];
    for (int x = 0; x < size; ++x, column += what.at[0], row += what.at[3], out += 3) {
      constexpr uint8_t black[3] = {};
      const uint8_t* p = what.fill;
      if (const int from_x = column >> 16, from_y = row >> 16; inside(from_x) && inside(from_y)) {
        p = source.as_stored ? source.pixels + (size_t(from_y) * size + from_x) * 3
                             : source.at(from_y, from_x);
        if (!p) p = black;
      }
      out[0] = p[0], out[1] = p[1], out[2] = p[2];
    }
  }
}

void erase(const Source& source, const ImageOp& what, uint8_t* out, uint8_t* buffer) {
  const int size = source.size;
  const int top = what.at[0], left = what.at[1], height = what.at[2], width = what.at[3];
  for (int y = 0; y < size; ++y, out += 3 * size) {
    __builtin_memcpy(out, source.row(y, buffer), size_t(3) * size);
    if (y < top || y - top >= height) continue;
    for (int x = left < 0 ? 0 : left; x < size && x - left < width; ++x)
      for (int c = 0; c < 3; ++c) out[3 * x + c] = what.fill[c];
  }
}

template <class F>
void by_pixel(const Source& source, uint8_t* out, uint8_t* buffer, F f) {
  for (int y = 0; y < source.size; ++y) {
    const uint8_t* p = source.row(y, buffer);
    for (int x = 0; x < source.size; ++x, p += 3, out += 3) {
      const Pixel result = f(Pixel{p[0], p[1], p[2]});
      out[0] = static_cast<uint8_t>(result.r);
      out[1] = static_cast<uint8_t>(result.g);
      out[2] = static_cast<uint8_t>(result.b);
    }
  }
}

void sharpness(const Source& source, int factor, uint8_t* out, uint8_t (&buffers)[3][max_row]) {
  const int size = source.size, n = 3 * size;
  const uint8_t* rows[3];  // above, here, below
  rows[1] = source.row(0, buffers[0]);
  rows[2] = size > 1 ? source.row(1, buffers[1]) : rows[1];
  for (int y = 0; y < size; ++y, out += n) {
    if (y > 0) {
      rows[0] = rows[1], rows[1] = rows[2];
      if (y + 1 < size) rows[2] = source.row(y + 1, buffers[(y + 1) % 3]);
    }
    const uint8_t* here = rows[1];
    __builtin_memcpy(out, here, n);
    if (y == 0 || y + 1 == size) continue;
    const uint8_t *above = rows[0], *below = rows[2];
#pragma omp simd
    for (int i = 3; i < n - 3; ++i) {
      const int around = above[i - 3] + above[i] + above[i + 3] + here[i - 3] + here[i + 3] +
                         below[i - 3] + below[i] + below[i + 3];
      out[i] = static_cast<uint8_t>(sharpened(here[i], around, factor));
    }
  }
}

}  // namespace

template <>
void CpuKernels::run(const AugmentImages& op) {
  const auto [B, height, width, size, layer, layers] = op.shape;
  const size_t image_bytes = size_t(3) * size * size;
#pragma omp parallel for schedule(dynamic)
  for (int b = 0; b < B; ++b) {
    const Source source(op, b);
    const ImageOp& what = op.ops[size_t(b) * layers + layer];
    const int n = what.at[0];
    uint8_t* out = op.out + b * image_bytes;
    uint8_t buffers[3][max_row];
    uint8_t* buffer = buffers[0];
    if (is_by_table(what.kind))
      by_table(source, what, out, buffer);
    else if (what.kind == ImageOpKind::affine)
      affine(source, what, out);
    else if (what.kind == ImageOpKind::erase)
      erase(source, what, out, buffer);
    else if (what.kind == ImageOpKind::color)
      by_pixel(source, out, buffer, [n](const Pixel& p) { return colored(p, n); });
    else if (what.kind == ImageOpKind::sharpness)
      sharpness(source, n, out, buffers);
    else if (what.kind == ImageOpKind::hue)
      by_pixel(source, out, buffer, [n](const Pixel& p) { return hue_rotated(p, n); });
    else
      by_pixel(source, out, buffer, [](const Pixel& p) { return p; });
  }
}

}  // namespace bv::BAREVISION_ISA
