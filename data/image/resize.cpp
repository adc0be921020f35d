// Sums whole input rows into a row of floats, a loop that always vectorises; then each output pixel
// sums its columns of that row. Bilinear reduction takes 4 (1 + 1 / scale) flops per source value.
#include "data/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace bv {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Byte4 = uint8_t __attribute__((vector_size(4)));

// out[i] = sum of weight * row[first + i] over the rows from `begin` on, one row per weight.
void add_rows(float* out, const Image& image, const Taps& rows, int begin, int first, int count) {
  const size_t stride = 3 * size_t(image.width);
  const uint8_t* from = image.pixels.data() + size_t(begin) * stride + first;
  std::fill_n(out, count, 0.0f);
  for (const float weight : rows.weights) {
#pragma omp simd
    for (int x = 0; x < count; ++x) out[x] += weight * static_cast<float>(from[x]);
    from += stride;
  }
}

// Computes one output pixel. The register's fourth lane sums the red of the next source pixels; its
// byte is written, too, and the next output pixel overwrites it.
void add_columns(uint8_t* out, const float* row, const Taps& columns) {
  Float4 sum = {0.5f, 0.5f, 0.5f, 0.5f};
  for (const float weight : columns.weights) {
    Float4 pixel;
    std::memcpy(&pixel, row, sizeof pixel);
    sum += weight * pixel;
    row += 3;
  }
  auto whole = __builtin_convertvector(sum, Int4);
  whole = whole < 0 ? Int4{} : whole;
  whole = whole > 255 ? Int4{} + 255 : whole;
  const auto bytes = __builtin_convertvector(whole, Byte4);
  std::memcpy(out, &bytes, sizeof bytes);
}

double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

}  // namespace

std::vector<Taps> filter_taps(int input_size, double begin, double length, int output_size,
                              Interpolation interpolation) {
  const bool bicubic = interpolation == Interpolation::bicubic;
  const double scale = length / output_size, unit = std::max(scale, 1.0);
  const double radius = bicubic ? 2 * unit : unit;
  std::vector<Taps> all(output_size);
  for (int i = 0; i < output_size; ++i) {
    const double centre = begin + (i + 0.5) * scale - 0.5;  // as a pixel index
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius)) + 1);
    const int last = std::min(input_size - 1, static_cast<int>(std::ceil(centre + radius)) - 1);
    Taps& taps = all[i];
    taps.begin = std::clamp(first, 0, input_size - 1);
    double sum = 0;
    for (int p = taps.begin; p <= std::max(last, taps.begin); ++p) {
      const double weight =
          bicubic ? cubic((p - centre) / unit) : std::max(1e-6, 1 - std::abs(p - centre) / unit);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
  }
  return all;
}

Box pixels_read(const Box& box, int height, int width, Interpolation interpolation) {
  const double radius = interpolation == Interpolation::bicubic ? 2 : 1;
  const double y = radius * std::max(box.height / height, 1.0);
  const double x = radius * std::max(box.width / width, 1.0);
  return {box.top - y, box.left - x, box.height + 2 * y, box.width + 2 * x};
}

void Resizer::run(const Image& pixels, const Region& at, int whole_height, int whole_width,
                  const Box& box, int height, int width, uint8_t* out,
                  Interpolation interpolation) {
  const auto rows = filter_taps(whole_height, box.top, box.height, height, interpolation);
  const auto columns = filter_taps(whole_width, box.left, box.width, width, interpolation);
  const int left = columns.front().begin;
  const int right = columns.back().begin + static_cast<int>(columns.back().weights.size());
  const int bottom = rows.back().begin + static_cast<int>(rows.back().weights.size());
  if (left < at.left || right > at.left + at.width || rows.front().begin < at.top ||
      bottom > at.top + at.height)
    throw std::logic_error("Resizer: the view holds less than the filter reads");
  const int count = 3 * (right - left);
  row_.resize(std::max<size_t>(row_.size(), count + 1));
  bytes_.resize(3 * size_t(width) + 1);
  for (int y = 0; y < height; ++y, out += 3 * size_t(width)) {
    add_rows(row_.data(), pixels, rows[y], rows[y].begin - at.top, 3 * (left - at.left), count);
    for (int x = 0; x < width; ++x)
      add_columns(bytes_.data() + 3 * size_t(x), row_.data() + 3 * (columns[x].begin - left),
                  columns[x]);
    std::memcpy(out, bytes_.data(), 3 * size_t(width));
  }
}

void Resizer::run(const Image& image, const Box& box, int height, int width, uint8_t* out,
                  Interpolation interpolation) {
  run(image, {.height = image.height, .width = image.width}, image.height, image.width, box, height,
      width, out, interpolation);
}

void Resizer::run(const View& view, const Box& box, int height, int width, uint8_t* out,
                  Interpolation interpolation) {
  run(view.pixels, view.at, view.height, view.width, view.scaled(box), height, width, out,
      interpolation);
}

}  // namespace bv
