// Where the pixels and the taps of a convolution lie, forward and for the input's gradient alike:
//   out[pixel, column] = sum over taps and depth of
//       image[pixel's place + tap, depth] weight[tap, depth, column]
// Forward: image is inp, columns are K, the depth is C. Input gradient: image is dout, out is dinp,
// columns are C, the depth is K. Its pixels (h, w) come in stride^2 phases, by their remainders, each
// of which has its own taps: no zeros are multiplied. The weight's gradient goes over the pixels of
// forward.
#pragma once
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
  int pixels, Y, X;          // of all images; rows and columns of one. Of a phase, with those that
                             // an odd size lacks
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
    const int Y = ceil_div(s.H, s.stride), X = ceil_div(s.W, s.stride);
    return {.pixels = s.N * Y * X,
            .Y = Y,
            .X = X,
            .by_image = Divisor(Y * X),
            .by_row = Divisor(X),
            .H = s.P(),
            .W = s.Q(),
            .out_H = s.H,
            .out_W = s.W,
            .R = s.R,
            .S = s.S,
            .stride = s.stride,
            .padding = s.padding};
  }
};

// One direction: the pixel at y reads the image at y * step + first + tap, and the filter at
// filter + tap * filter_step.
struct Axis {
  int pixels, step, first, taps, filter, filter_step;

  // Without the taps that lie outside the image for every pixel: of a 3x3 filter on a map of one
  // pixel, all but one.
  __host__ __device__ Axis within(int image) const {
    const int begin = max(0, -first - (pixels - 1) * step), end = min(taps, image - first);
    return {pixels,     step, first + begin, max(0, end - begin), filter + begin * filter_step,
            filter_step};
  }
};

// Phase a of the input gradient: h = y * stride + a. Of the filter's r, every stride-th has
// p = (h + padding - r) / stride without a remainder, and p rises as r falls.
template <bool input_gradient>
__host__ __device__ Axis axis(int a, int filter, int image, int pixels, int stride, int padding) {
  if (!input_gradient) return Axis{pixels, stride, -padding, filter, 0, 1}.within(image);
  const int r = (a + padding) % stride, taps = r < filter ? (filter - r - 1) / stride + 1 : 0;
  return Axis{pixels, 1, (a + padding) / stride - (taps - 1), taps, r + (taps - 1) * stride,
              -stride}
      .within(image);
}

struct Phase {
  int a, b;
  Axis y, x;

  // The last one first: of a 3x3 or 7x7 at stride 2 it has most taps.
  template <bool input_gradient>
  __device__ static Phase of_block(const Geometry& g, int block, int blocks) {
    const int phase = blocks - 1 - block;
    Phase of;
    of.a = phase / g.stride, of.b = phase % g.stride;
    of.y = axis<input_gradient>(of.a, g.R, g.H, g.Y, g.stride, g.padding);
    of.x = axis<input_gradient>(of.b, g.S, g.W, g.X, g.stride, g.padding);
    return of;
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

// The row of `out` that a pixel is; -1 where there is none.
template <bool input_gradient>
__device__ int out_row(const Geometry& g, const Phase& phase, int pixel) {
  if (pixel >= g.pixels) return -1;
  if (!input_gradient || g.stride == 1) return pixel;
  const Pixel at(g, pixel);
  const int h = at.y * g.stride + phase.a, w = at.x * g.stride + phase.b;
  return h < g.out_H && w < g.out_W ? (at.image * g.out_H + h) * g.out_W + w : -1;
}

// How the weight's gradient shares out its steps over the pixels: in as many parts as make waves of
// `places` blocks, a part's length each, end soonest. Each part has 8 steps at least, and is worth the
// sums to be added up in the end by a twentieth; the sums of all stay within 64 MB.
struct PixelParts {
  int steps, count;  // of a part; parts
};
inline PixelParts parts_of_pixels(const ConvShape& s, int steps, int tiles, int places) {
  constexpr double max_bytes = 64 << 20;
  const int most =
      std::min({steps / 8, static_cast<int>(max_bytes / (sizeof(float) * s.weight_count())), 1024});
  int best = 1;
  double least = ceil_div(tiles, places);
  for (int parts = 2; parts <= most && (parts - 1) * tiles < 2 * places; ++parts)
    if (const double waves = double(ceil_div(tiles * parts, places)) / parts; waves < 0.95 * least)
      best = parts, least = waves;
  const int steps_of_part = ceil_div(steps, best);
  return {steps_of_part, ceil_div(steps, steps_of_part)};
}

}  // namespace bv::BAREVISION_GPU
