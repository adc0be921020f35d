// Pixels to normalised patches, what a ViT's first matrix product reads:
//   out[b, gy * grid + gx, (c * patch + py) * patch + px] = (pixel / 255 - mean[c]) / std[c]
//   of pixel (gy * patch + py, gx * patch + px, c) as the image's crop takes it, 0 outside
// A row of the result is gathered as bytes first, one plane a channel, with crop and flip; then a
// patch's share of the row is a stretch of bytes that is turned to floats, one fma each, in
// vectors. Threads share out rows of patches. 1 byte in and 4 out an element: memory is the limit.
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

// Pixels x .. x + n of row y of image b's crop.
void gather(const InputPatches& op, int b, int y, int x, int n, Planes& planes) {
  const Crop& crop = op.crops[b];
  const int row = y + crop.top;
  if (row < 0 || row >= op.height) {
    for (auto& plane : planes.channel) __builtin_memset(plane, 0, n);
    return;
  }
  // Pixel i is column first + i of the image, or first - i; those of begin <= i < end are inside.
  const int first = crop.flip ? crop.left + op.size - 1 - x : crop.left + x;
  const int begin = clamp(crop.flip ? first - op.width + 1 : -first, 0, n);
  const int end = clamp(crop.flip ? first + 1 : op.width - first, begin, n);
  for (auto& plane : planes.channel) {
    __builtin_memset(plane, 0, begin);
    __builtin_memset(plane + end, 0, n - end);
  }
  const uint8_t* pixels = op.images + (size_t(b) * op.height + row) * op.width * 3;
  const auto& shuffles = crop.flip ? simd::reversed_pixels : simd::forward_pixels;
  auto& [red, green, blue] = planes.channel;
  int i = begin;
  for (; i + 16 <= end; i += 16) {
    const int leftmost = crop.flip ? first - i - 15 : first + i;
    simd::split_pixels(pixels + 3 * leftmost, shuffles, red + i, green + i, blue + i);
  }
  for (; i < end; ++i) {
    const uint8_t* pixel = pixels + 3 * (crop.flip ? first - i : first + i);
    red[i] = pixel[0], green[i] = pixel[1], blue[i] = pixel[2];
  }
}

// n pixels from column x of row y on, of which x and n are multiples of the patch size.
void write_row(const InputPatches& op, int b, int y, int x, int n, const Planes& planes) {
  const int patch = op.patch, grid = op.size / patch, py = y % patch;
  const size_t area = size_t(patch) * patch;
  const size_t first = (size_t(b) * grid + y / patch) * grid + x / patch;
  for (int c = 0; c < 3; ++c) {
    const float factor = 1.0f / (255.0f * op.std[c]), shift = -op.mean[c] / op.std[c];
    float* out = static_cast<float*>(op.out) + first * 3 * area + c * area + size_t(py) * patch;
    for (int i = 0; i < n; i += patch, out += 3 * area) {
      simd::for_each(patch, [&](int px, auto lanes) {
        const simd::vf pixels = simd::load_bytes(planes.channel[c] + i + px);
        lanes.store(out + px, simd::fma(pixels, simd::set(factor), simd::set(shift)));
      });
    }
  }
}

}  // namespace

void CpuKernels::run(const InputPatches& op, Stream) {
  require(op.B > 0 && op.height > 0 && op.width > 0, "InputPatches",
          "B, height and width must be positive");
  require(op.patch > 0 && op.patch <= stretch, "InputPatches", "patch must be in 1-512");
  require(op.size > 0 && op.size % op.patch == 0, "InputPatches",
          "size must be a positive multiple of patch");
  require(op.dtype == DType::fp32, "InputPatches", "dtype must be fp32 on this device");
  require(op.out && op.images && op.crops, "InputPatches",
          "out, images and crops must not be null");
  const int grid = op.size / op.patch, most = stretch / op.patch * op.patch;
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < op.B; ++b) {
    for (int gy = 0; gy < grid; ++gy) {
      Planes planes;
      for (int y = gy * op.patch; y < (gy + 1) * op.patch; ++y) {
        for (int x = 0; x < op.size; x += most) {
          const int n = op.size - x < most ? op.size - x : most;
          gather(op, b, y, x, n, planes);
          write_row(op, b, y, x, n, planes);
        }
      }
    }
  }
}

}  // namespace bv::BAREVISION_ISA
