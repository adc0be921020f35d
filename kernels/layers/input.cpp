// Converts pixels to normalised patches, the input of a ViT's first matrix product, or, pixel by
// pixel (patch = 1), of a ResNet's first convolution:
//   out[b, gy * grid + gx, (c * patch + py) * patch + px] = (pixel / 255 - mean[c]) / std[c]   =
//   for pixel (gy * patch + py, gx * patch + px, c) of the cropped image, 0 outside the stored
//   image, mixed with the partner's pixel
// A row is first gathered as bytes, cropped and flipped, one plane per channel, and so is the
// partner's row if the image is mixed; then each patch's part of the row is converted in vectors,
// one fma per element. Mixing here costs one more read of the partner, which is in the cache
// anyway; a separate pass would also write and read the batch once more. Patches of one pixel keep
// the channels interleaved: their bytes are gathered as they are, and three vectors of interleaved
// factors are used in turn. Threads divide the rows of patches.
// 1 byte in and 4 out per element: memory is the limit.
#include "kernels/augment/mix.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

constexpr int stretch = 512;  // pixels gathered at a time
struct Planes {
  uint8_t channel[3][stretch + simd::width];  // vectors read past the end
};

int clamp(int x, int least, int most) { return x < least ? least : x > most ? most : x; }

// Pixels x .. x + n of row y of image b's crop: pixel i is column first + i of the image's row, or
// first - i if flip; pixels begin <= i < end are in bounds.
struct Source {
  const uint8_t* row;
  int first, begin, end;
  bool flip;

  // The leftmost of pixels i .. i + n.
  const uint8_t* pixels(int i, int n) const {
    return row + 3 * (flip ? first - i - n + 1 : first + i);
  }
};

Source find(const InputPatches& op, int b, int y, int x, int n) {
  const Crop crop = op.crops ? op.crops[b] : Crop{};
  const int height = op.shape.height, width = op.shape.width;
  const int row = crop.top + (crop.upside_down ? op.shape.size - 1 - y : y);
  const bool flip = crop.flip;
  const int first = flip ? crop.left + op.shape.size - 1 - x : crop.left + x;
  if (row < 0 || row >= height) return {nullptr, first, n, n, flip};
  const int begin = clamp(flip ? first - width + 1 : -first, 0, n);
  const int end = clamp(flip ? first + 1 : width - first, begin, n);
  return {op.images + (size_t(b) * height + row) * width * 3, first, begin, end, flip};
}

// Which of pixels x .. x + n of row y are mixed with the partner's: begin .. end.
struct Mixed {
  int begin, end, part;  // part: the image's own weight, in 1/65536
};

Mixed find_mixed(const InputPatches& op, int b, int y, int x, int n) {
  if (!op.mixes) return {0, 0, 65536};
  const Mix& mix = op.mixes[b];
  const int part = own_part(mix, mix.top, mix.left);
  if (!has_box(mix)) return {0, part < 65536 ? n : 0, part};
  if (y < mix.top || y >= mix.bottom) return {0, 0, part};
  return {clamp(mix.left - x, 0, n), clamp(mix.right - x, 0, n), part};
}

void mix_bytes(uint8_t* own, const uint8_t* partner, int n, int part) {
#pragma omp simd
  for (int i = 0; i < n; ++i) own[i] = static_cast<uint8_t>(mixed(own[i], partner[i], part));
}

// Pixels x .. x + n of row y of image b's crop.
void gather(const InputPatches& op, int b, int y, int x, int n, Planes& planes) {
  const Source source = find(op, b, y, x, n);
  const int end = source.end;
  for (auto& plane : planes.channel) {
    __builtin_memset(plane, 0, source.begin);
    __builtin_memset(plane + end, 0, n - end);
  }
  const auto& shuffles = source.flip ? simd::reversed_pixels : simd::forward_pixels;
  auto& [red, green, blue] = planes.channel;
  int i = source.begin;
  for (; i + 16 <= end; i += 16)
    simd::split_pixels(source.pixels(i, 16), shuffles, red + i, green + i, blue + i);
  for (; i < end; ++i) {
    const uint8_t* pixel = source.pixels(i, 1);
    red[i] = pixel[0], green[i] = pixel[1], blue[i] = pixel[2];
  }
}

void gather_mixed(const InputPatches& op, int b, int y, int x, int n, Planes& planes) {
  gather(op, b, y, x, n, planes);
  const auto [begin, end, part] = find_mixed(op, b, y, x, n);
  if (begin >= end) return;
  Planes partner;
  gather(op, b ^ 1, y, x + begin, end - begin, partner);
  for (int c = 0; c < 3; ++c)
    mix_bytes(planes.channel[c] + begin, partner.channel[c], end - begin, part);
}

// Pixels x .. x + n of row y; x and n are multiples of the patch size.
template <class T>
void write_row(const InputPatches& op, int b, int y, int x, int n, const Planes& planes) {
  const int patch = op.shape.patch, grid = op.shape.size / patch, py = y % patch;
  const size_t area = size_t(patch) * patch;
  const size_t first = (size_t(b) * grid + y / patch) * grid + x / patch;
  for (int c = 0; c < 3; ++c) {
    const float factor = 1.0f / (255.0f * op.shape.std[c]),
                shift = -op.shape.mean[c] / op.shape.std[c];
    T* out = as<T>(op.out) + first * 3 * area + c * area + size_t(py) * patch;
    for (int i = 0; i < n; i += patch, out += 3 * area) {
      simd::for_each(patch, [&](int px, auto lanes) {
        const simd::vf pixels = simd::load_bytes(planes.channel[c] + i + px);
        lanes.store(out + px, simd::fma(pixels, simd::set(factor), simd::set(shift)));
      });
    }
  }
}

// ---- patches of one pixel -----------------------------------------------------------------------
// Factor and shift of a row's element i, of channel i % 3, in three vectors that are used in turn.
struct Channels {
  simd::vf factor[3], shift[3];
};

Channels channels_of(const InputPatches& op) {
  Channels channels;
  for (int i = 0; i < 3 * simd::width; ++i) {
    const int v = i / simd::width, lane = i % simd::width;
    channels.factor[v][lane] = 1.0f / (255.0f * op.shape.std[i % 3]);
    channels.shift[v][lane] = -op.shape.mean[i % 3] / op.shape.std[i % 3];
  }
  return channels;
}

constexpr int row_bytes = 3 * (stretch + simd::width);

// Like gather, with a pixel's three bytes next to each other; may write past the last pixel.
void gather_pixels(const InputPatches& op, int b, int y, int x, int n, uint8_t* bytes) {
  const Source source = find(op, b, y, x, n);
  const int begin = source.begin, end = source.end;
  if (begin < end && !source.flip) {
    __builtin_memcpy(bytes + 3 * begin, source.pixels(begin, 1), 3 * (end - begin));
  } else {
    constexpr int step = simd::pixels_at_once;
    int i = begin;
    // Also reads the pixel before those that it reverses.
    for (; i + step + 1 <= end; i += step)
      simd::reverse_pixels(source.pixels(i, step), bytes + 3 * i);
    for (; i < end; ++i) __builtin_memcpy(bytes + 3 * i, source.pixels(i, 1), 3);
  }
  __builtin_memset(bytes, 0, 3 * begin);
  __builtin_memset(bytes + 3 * end, 0, 3 * (n - end));
}

void gather_mixed_pixels(const InputPatches& op, int b, int y, int x, int n, uint8_t* bytes) {
  gather_pixels(op, b, y, x, n, bytes);
  const auto [begin, end, part] = find_mixed(op, b, y, x, n);
  if (begin >= end) return;
  uint8_t partner[row_bytes];
  gather_pixels(op, b ^ 1, y, x + begin, end - begin, partner);
  mix_bytes(bytes + 3 * begin, partner, 3 * (end - begin), part);
}

template <class T>
void write_pixels(const InputPatches& op, const Channels& channels, int b, int y) {
  uint8_t bytes[row_bytes];
  const int size = op.shape.size;
  T* out = as<T>(op.out) + (size_t(b) * size + y) * size * 3;
  for (int x = 0; x < size; x += stretch) {
    const int n = size - x < stretch ? size - x : stretch;
    gather_mixed_pixels(op, b, y, x, n, bytes);
    const auto convert = [&](int i, int v, auto lanes) {
      lanes.store(out + 3 * x + i,
                  simd::fma(simd::load_bytes(bytes + i), channels.factor[v], channels.shift[v]));
    };
    int i = 0;
    for (; i + 3 * simd::width <= 3 * n; i += 3 * simd::width)
      for (int v = 0; v < 3; ++v) convert(i + v * simd::width, v, simd::Whole{});
    for (int v = 0; i < 3 * n; ++v, i += simd::width)
      simd::for_each(3 * n - i < simd::width ? 3 * n - i : simd::width,
                     [&](int, auto lanes) { convert(i, v, lanes); });
  }
}

template <class T>
void write(const InputPatches& op) {
  const int B = op.shape.B, size = op.shape.size, patch = op.shape.patch;
  if (patch == 1) {
    const Channels channels = channels_of(op);
#pragma omp parallel for collapse(2) schedule(static)
    for (int b = 0; b < B; ++b)
      for (int y = 0; y < size; ++y) write_pixels<T>(op, channels, b, y);
    return;
  }
  const int grid = size / patch, max_pixels = stretch / patch * patch;
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < B; ++b)
    for (int gy = 0; gy < grid; ++gy) {
      Planes planes;
      for (int y = gy * patch; y < (gy + 1) * patch; ++y)
        for (int x = 0; x < size; x += max_pixels) {
          const int n = size - x < max_pixels ? size - x : max_pixels;
          gather_mixed(op, b, y, x, n, planes);
          write_row<T>(op, b, y, x, n, planes);
        }
    }
}

}  // namespace

template <>
void CpuKernels::run(const InputPatches& op) {
  require(op.shape.patch <= stretch, "InputPatches", "patch must be in 1-512");
  with_type(op.dtype, [&]<class T>(T) { write<T>(op); });
}

}  // namespace bv::BAREVISION_ISA
