// A convolution as a matrix product, the same for forward and for the input gradient:
//   out[pixel, n] = sum over taps and k of image[the pixel's position + tap, k] weight[tap, k, n]
// In forward, image is inp, n runs over K, k over C. In the input gradient, image is dout, out is
// dinp, n runs over C, k over K; dinp's pixels (h, w) are divided into stride^2 phases by their
// remainders modulo stride, and each phase has its own taps, so that no zeros are multiplied. The
// weight gradient sums over the pixels of forward.
#pragma once
#include <algorithm>
#include <utility>

#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {

// m / d for 0 <= m < 2^31 by a multiplication.
struct Divisor {
  uint32_t factor;
  int shift;

  __host__ __device__ explicit Divisor(int d) : shift(31) {
    while (int64_t{1} << (shift - 31) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << shift) + d - 1) / d);
  }
  __device__ int divide(int m) const {
    return static_cast<int>(static_cast<uint64_t>(factor) * static_cast<uint32_t>(m) >> shift);
  }
};

struct Geometry {
  int pixels, Y, X;          // of all images; rows and columns of one image. Input gradient: of a
                             // phase, rounded up to the same number in all phases
  Divisor by_image, by_row;  // Y * X, X
  int H, W;                  // of the image
  int out_H, out_W;
  int R, S, stride, padding;

  static Geometry forward(const ConvShape& s) {
    return {.pixels = s.N * s.P() * s.Q(),
            .Y = s.P(),
            .X = s.Q(),
            .by_image = Divisor(s.P() * s.Q()),
            .by_row = Divisor(s.Q()),
            .H = s.H,
            .W = s.W,
            .out_H = s.P(),
            .out_W = s.Q(),
            .R = s.R,
            .S = s.S,
            .stride = s.stride,
            .padding = s.padding};
  }
  static Geometry backward_input(const ConvShape& s) {
    Geometry g = forward(s);
    g.Y = ceil_div(s.H, s.stride), g.X = ceil_div(s.W, s.stride);
    g.pixels = s.N * g.Y * g.X;
    g.by_image = Divisor(g.Y * g.X), g.by_row = Divisor(g.X);
    std::swap(g.H, g.out_H), std::swap(g.W, g.out_W);
    return g;
  }

  __device__ bool in_bounds(int h, int w) const {
    return static_cast<unsigned>(h) < static_cast<unsigned>(H) &&
           static_cast<unsigned>(w) < static_cast<unsigned>(W);
  }
};

// One axis: for each tap, the pixel at y reads the image at y * step + first + tap and the filter
// at filter + tap * filter_step.
struct Axis {
  int pixels, step, first, taps, filter, filter_step;

  // The axis without the taps that fall outside the image for every pixel: on a 1x1 map, a 3x3
  // filter keeps one tap.
  __host__ __device__ Axis within(int image) const {
    const int begin = max(0, -first - (pixels - 1) * step), end = min(taps, image - first);
    return {.pixels = pixels,
            .step = step,
            .first = first + begin,
            .taps = max(0, end - begin),
            .filter = filter + begin * filter_step,
            .filter_step = filter_step};
  }
};

// Phase a of the input gradient: h = y * stride + a. Every stride-th r of the filter gives a whole
// p = (h + padding - r) / stride, and p rises as r falls.
template <bool input_gradient>
__host__ __device__ Axis axis(int a, int filter, int image, int pixels, int stride, int padding) {
  Axis all{.pixels = pixels,
           .step = stride,
           .first = -padding,
           .taps = filter,
           .filter = 0,
           .filter_step = 1};
  if (input_gradient) {
    const int r = (a + padding) % stride, taps = r < filter ? (filter - r - 1) / stride + 1 : 0;
    all = {.pixels = pixels,
           .step = 1,
           .first = (a + padding) / stride - (taps - 1),
           .taps = taps,
           .filter = r + (taps - 1) * stride,
           .filter_step = -stride};
  }
  return all.within(image);
}

struct Phase {
  int a, b;
  Axis y, x;

  __host__ __device__ int taps() const { return y.taps * x.taps; }

  // The last phase first: with 3x3 or 7x7 at stride 2 it has the most taps.
  template <bool input_gradient>
  __host__ __device__ static Phase of_block(const Geometry& g, int block, int blocks) {
    const int phase = blocks - 1 - block, a = phase / g.stride, b = phase % g.stride;
    return {.a = a,
            .b = b,
            .y = axis<input_gradient>(a, g.R, g.H, g.Y, g.stride, g.padding),
            .x = axis<input_gradient>(b, g.S, g.W, g.X, g.stride, g.padding)};
  }
};

struct Pixel {
  int image, y, x;
  __device__ Pixel(const Geometry& g, int pixel) {
    image = g.by_image.divide(pixel);
    const int rest = pixel - image * (g.Y * g.X);
    y = g.by_row.divide(rest);
    x = rest - y * g.X;
  }
  __device__ void go_on(const Geometry& g) {
    if (++x < g.X) return;
    x = 0;
    if (++y < g.Y) return;
    y = 0, ++image;
  }
};

// The pixel's row of `out`, or -1 outside.
template <bool input_gradient>
__device__ int out_row(const Geometry& g, const Phase& phase, int pixel) {
  if (pixel >= g.pixels) return -1;
  if (!input_gradient || g.stride == 1) return pixel;
  const Pixel at(g, pixel);
  const int h = at.y * g.stride + phase.a, w = at.x * g.stride + phase.b;
  return h < g.out_H && w < g.out_W ? (at.image * g.out_H + h) * g.out_W + w : -1;
}

// The weight gradient's steps over the pixels are divided into parts with separate blocks. The
// number of parts minimises the number of waves, of `places` blocks each, times the steps per part.
// A part has at least `least` steps. A further split must save 5%, the cost of the extra reduction.
// The sums of all parts take at most 64 MB.
struct PixelParts {
  int steps, count;  // per part; parts

  // Bytes of the parts' sums: 0 if there is one part, which writes the gradient directly.
  size_t bytes(const ConvShape& s) const {
    return count == 1 ? 0 : sizeof(float) * count * static_cast<size_t>(s.weight_count());
  }
};
inline PixelParts parts_of_pixels(const ConvShape& s, int steps, int tiles, int places,
                                  int least = 8) {
  constexpr double max_bytes = 64 << 20;
  const int max_parts = std::min(
      {steps / least, static_cast<int>(max_bytes / (sizeof(float) * s.weight_count())), 1024});
  int best = 1;
  double min_waves = ceil_div(tiles, places);
  for (int parts = 2; parts <= max_parts && (parts - 1) * tiles < 2 * places; ++parts) {
    const double waves = double(ceil_div(tiles * parts, places)) / parts;
    if (waves < 0.95 * min_waves) best = parts, min_waves = waves;
  }
  const int steps_of_part = ceil_div(steps, best);
  return {.steps = steps_of_part, .count = ceil_div(steps, steps_of_part)};
}

}  // namespace bv::BAREVISION_GPU
