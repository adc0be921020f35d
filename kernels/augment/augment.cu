// Applies to each training image the operation that its ImageOp (kernels/types.h) specifies. The
// first layer of operations reads the stored images through their crops.
//
// Grid: (parts of an image, images). A block computes some rows of one image, a thread 4
// neighbouring pixels at a time, written as 3 words, or single pixels if rows are not whole words.
// Tables are in shared memory. For contrast, autocontrast and equalize, each block first counts the
// values of the whole image, not only of its part (integer atomics: their order doesn't matter);
// one thread per channel then computes the table.
// 1 byte in and 1 out per element; the blocks of an image's other parts read it from L2.
// Instructions are the limit. Registers and blocks per SM: tests/kernels/resources.txt.
#include <algorithm>

#include "kernels/augment/pixels.h"
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 256;
constexpr int max_parts = 8;

struct Shared {
  unsigned counts[3][256];
  uint8_t tables[3][256];
};

// A stored image seen through its crop.
struct Source {
  const uint8_t* pixels;
  int height, width, size;
  Crop crop;

  __device__ Source(const AugmentImages& op, int b)
      : pixels(op.images + static_cast<size_t>(b) * op.shape.height * op.shape.width * 3),
        height(op.shape.height),
        width(op.shape.width),
        size(op.shape.size),
        crop(op.crops ? op.crops[b] : Crop{}) {}

  // Black outside the stored image.
  __device__ Pixel at(int y, int x) const {
    const int row = crop.top + (crop.upside_down ? size - 1 - y : y);
    const int column = crop.left + (crop.flip ? size - 1 - x : x);
    if (row < 0 || row >= height || column < 0 || column >= width) return {0, 0, 0};
    const uint8_t* p = pixels + (static_cast<size_t>(row) * width + column) * 3;
    return {p[0], p[1], p[2]};
  }
};

__device__ void count(const Source& source, ImageOpKind kind, Shared& s) {
  for (int i = threadIdx.x; i < 3 * 256; i += threads) s.counts[i / 256][i % 256] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < source.size * source.size; i += threads) {
    const Pixel p = source.at(i / source.size, i % source.size);
    if (kind == ImageOpKind::contrast) {
      atomicAdd(&s.counts[0][grey(p)], 1u);
    } else {
      atomicAdd(&s.counts[0][p.r], 1u);
      atomicAdd(&s.counts[1][p.g], 1u);
      atomicAdd(&s.counts[2][p.b], 1u);
    }
  }
  __syncthreads();
}

__device__ Pixel sharpened(const Source& source, int y, int x, int factor) {
  const Pixel p = source.at(y, x);
  if (y == 0 || x == 0 || y + 1 == source.size || x + 1 == source.size) return p;
  Pixel around{-p.r, -p.g, -p.b};
  for (int dy = -1; dy <= 1; ++dy)
    for (int dx = -1; dx <= 1; ++dx) {
      const Pixel q = source.at(y + dy, x + dx);
      around.r += q.r, around.g += q.g, around.b += q.b;
    }
  return {bv::sharpened(p.r, around.r, factor), bv::sharpened(p.g, around.g, factor),
          bv::sharpened(p.b, around.b, factor)};
}

__device__ Pixel result(const Source& source, const ImageOp& what, const Shared& s, int y, int x) {
  const int n = what.at[0];
  const Pixel fill{what.fill[0], what.fill[1], what.fill[2]};
  if (is_by_table(what.kind)) {
    const Pixel p = source.at(y, x);
    return {s.tables[0][p.r], s.tables[1][p.g], s.tables[2][p.b]};
  }
  if (what.kind == ImageOpKind::affine) {
    const int column = (n * x + what.at[1] * y + what.at[2]) >> 16;
    const int row = (what.at[3] * x + what.at[4] * y + what.at[5]) >> 16;
    const unsigned size = source.size;
    return unsigned(row) < size && unsigned(column) < size ? source.at(row, column) : fill;
  }
  if (what.kind == ImageOpKind::erase)
    return y >= n && y - n < what.at[2] && x >= what.at[1] && x - what.at[1] < what.at[3]
               ? fill
               : source.at(y, x);
  if (what.kind == ImageOpKind::color) return colored(source.at(y, x), n);
  if (what.kind == ImageOpKind::sharpness) return sharpened(source, y, x, n);
  if (what.kind == ImageOpKind::hue) return hue_rotated(source.at(y, x), n);
  return source.at(y, x);
}

// ---- plain --------------------------------------------------------------------------------------
// A thread computes an image.
__global__ void augment_images_plain(AugmentImages op) {
  const size_t b = thread_number();
  const int size = op.shape.size;
  if (b >= size_t(op.shape.B)) return;
  const ImageOp what = op.ops[b * op.shape.layers + op.shape.layer];
  const bool by_grey = what.kind == ImageOpKind::contrast;
  const Source source(op, static_cast<int>(b));
  Shared s = {};  // the thread's own
  for (int i = 0; is_counted(what.kind) && i < size * size; ++i) {
    const Pixel p = source.at(i / size, i % size);
    ++s.counts[0][by_grey ? grey(p) : p.r], ++s.counts[1][p.g], ++s.counts[2][p.b];
  }
  for (int c = 0; is_by_table(what.kind) && c < 3; ++c)
    make_table(what, s.counts[by_grey ? 0 : c], s.tables[c]);
  uint8_t* out = op.out + b * size * size * 3;
  for (int i = 0; i < size * size; ++i) {
    const Pixel p = result(source, what, s, i / size, i % size);
    out[3 * i] = p.r, out[3 * i + 1] = p.g, out[3 * i + 2] = p.b;
  }
}

// ---- several blocks per image -------------------------------------------------------------------

template <int width>
__global__ void __launch_bounds__(threads) augment_images(AugmentImages op, int rows) {
  await_kernel_ahead();
  auto& s = shared<Shared>();
  const int b = static_cast<int>(blockIdx.y), size = op.shape.size;
  const ImageOp what = op.ops[static_cast<size_t>(b) * op.shape.layers + op.shape.layer];
  const Source source(op, b);
  if (is_by_table(what.kind)) {
    if (is_counted(what.kind)) count(source, what.kind, s);
    if (threadIdx.x < 3)
      make_table(what, s.counts[what.kind == ImageOpKind::contrast ? 0 : threadIdx.x],
                 s.tables[threadIdx.x]);
    __syncthreads();
  }
  const int first = blockIdx.x * rows, last = min(first + rows, size), pieces = size / width;
  uint8_t* out = op.out + static_cast<size_t>(b) * size * size * 3;
  for (int i = threadIdx.x; i < (last - first) * pieces; i += threads) {
    const int y = first + i / pieces, x = i % pieces * width;
    uint32_t words[3] = {};
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const Pixel p = result(source, what, s, y, x + k);
      const int values[3] = {p.r, p.g, p.b};
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        const int at = 3 * k + c;
        words[at / 4] |= static_cast<uint32_t>(values[c]) << at % 4 * 8;
      }
    }
    uint8_t* to = out + (static_cast<size_t>(y) * size + x) * 3;
    if constexpr (width == 4) {
#pragma unroll
      for (int k = 0; k < 3; ++k) reinterpret_cast<uint32_t*>(to)[k] = words[k];
    } else {
#pragma unroll
      for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(words[0] >> 8 * c);
    }
  }
}

}  // namespace

template <>
void CudaKernels::run(const AugmentImages& op, cudaStream_t stream) {
  const int B = op.shape.B, size = op.shape.size;
  require(B <= 65535, "AugmentImages", "B: %d, but at most 65535", B);
  // Just enough blocks to fill the GPU: each block counts the values of the whole image.
  const int wanted = std::min(ceil_div(8 * props_.sms, B), max_parts);
  const int rows = ceil_div(size, wanted), parts = ceil_div(size, rows);
  const auto run = [&]<int width>() {
    launch<augment_images<width>>(dim3(parts, B), threads, sizeof(Shared), stream, op, rows);
  };
  if (size % 4 == 0)
    run.template operator()<4>();
  else
    run.template operator()<1>();
}

template <>
void PlainKernels::run(const AugmentImages& op, cudaStream_t stream) {
  launch_each<augment_images_plain>(op.shape.B, stream, op);
}

}  // namespace bv::BAREVISION_GPU
