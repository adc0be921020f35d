// Converts pixels to normalised patches, the input of a ViT's first matrix product, or, pixel by
// pixel (patch = 1), of a ResNet's first convolution:
//   out[b, gy * grid + gx, (c * patch + py) * patch + px] = (pixel / 255 - mean[c]) / std[c]   =
//   for pixel (gy * patch + py, gx * patch + px, c) of the cropped image, 0 outside the stored
//   image, mixed with the partner's pixel
// as pixel * factor + shift, one fma.
//
// Grid: (pieces of an image, images). For patches, a thread reads `width` neighbouring pixels of a
// row and writes `width` neighbours in each of the patch's 3 planes, 16 bytes if the patch's side
// allows (8 for a side of 4 in 16 bits). For patches of one pixel, it writes 16 bytes of a row,
// from the few pixels that these elements belong to. Neighbouring threads write neighbouring
// memory. Pixels are 3 bytes and start anywhere: whole 4-byte words are read and shifted, single
// bytes only at an image's border or if `width` is 1. Neighbouring patches, and the partner of a
// mixed image, read the same rows from L1 or L2: mixing here costs one more read, while a separate
// pass would read and write the batch once more.
//
// 1 byte in and 2 or 4 out per element: memory is the limit. Registers and blocks per SM:
// tests/kernels/resources.txt.
#include "kernels/augment/mix.h"
#include "kernels/cuda/plain.cuh"
#include "kernels/cuda/ptx.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// Channel c of pixel (y, x) of image b's crop; 0 outside the stored image.
__device__ int cropped_pixel(const InputPatches& op, size_t b, int y, int x, int c) {
  const auto [B, height, width, size, patch, mean, std] = op.shape;
  const Crop crop = op.crops ? op.crops[b] : Crop{};
  const int row = crop.top + (crop.upside_down ? size - 1 - y : y);
  const int column = crop.left + (crop.flip ? size - 1 - x : x);
  if (row < 0 || row >= height || column < 0 || column >= width) return 0;
  return op.images[((b * height + row) * width + column) * 3 + c];
}

template <class T>
__global__ void input_patches_plain(InputPatches op) {
  const int size = op.shape.size, patch = op.shape.patch, grid = size / patch;
  const size_t i = thread_number();
  if (i >= size_t(op.shape.B) * size * size * 3) return;
  const int px = i % patch, py = i / patch % patch, c = i / patch / patch % 3;
  const size_t patches = i / patch / patch / 3, b = patches / grid / grid;
  const int y = patches / grid % grid * patch + py, x = patches % grid * patch + px;
  int pixel = cropped_pixel(op, b, y, x, c);
  if (op.mixes)
    pixel = mixed(pixel, cropped_pixel(op, b ^ 1, y, x, c), own_part(op.mixes[b], y, x));
  as<T>(op.out)[i] = from_float<T>((pixel / 255.0f - op.shape.mean[c]) / op.shape.std[c]);
}

// ---- patches of several pixels ------------------------------------------------------------------

constexpr int threads = 256;

// pixel * factor + shift, for each channel
struct Normalisation {
  float factor[3], shift[3];
};

// v[k] = bytes 4k .. 4k + 3 from any address; reads only words that hold some of them.
template <int words>
__device__ void load_words(uint32_t (&v)[words], const uint8_t* bytes) {
  const unsigned into = reinterpret_cast<uintptr_t>(bytes) % 4, shift = into * 8;
  const auto* word = reinterpret_cast<const uint32_t*>(bytes - into);
  uint32_t low = word[0];
#pragma unroll
  for (int k = 0; k < words; ++k) {
    const uint32_t high = k + 1 < words || shift ? word[k + 1] : 0;
    v[k] = static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift);
    low = high;
  }
}

template <int words>
__device__ uint32_t byte_of(const uint32_t (&v)[words], int k) {
  return v[k / 4] >> k % 4 * 8 & 0xFF;
}

// Reverses the order of the pixels, 3 bytes each.
template <int width, int words>
__device__ void reverse_pixels(uint32_t (&v)[words]) {
  uint32_t reversed[words];
#pragma unroll
  for (int k = 0; k < words; ++k) reversed[k] = 0;
#pragma unroll
  for (int k = 0; k < 3 * width; ++k)
    reversed[k / 4] |= byte_of(v, 3 * (width - 1 - k / 3) + k % 3) << k % 4 * 8;
#pragma unroll
  for (int k = 0; k < words; ++k) v[k] = reversed[k];
}

// The bytes of pixels x, x + 1, .. of row y, mixed with the partner's.
template <int words>
__device__ void mix_words(uint32_t (&v)[words], const uint32_t (&partner)[words], const Mix& mix,
                          int y, int x) {
  uint32_t result[words];
#pragma unroll
  for (int k = 0; k < words; ++k) result[k] = 0;
#pragma unroll
  for (int k = 0; k < 4 * words; ++k) {
    const int own = byte_of(v, k), other = byte_of(partner, k);
    result[k / 4] |= uint32_t(mixed(own, other, own_part(mix, y, x + k / 3))) << k % 4 * 8;
  }
#pragma unroll
  for (int k = 0; k < words; ++k) v[k] = result[k];
}

// Stores in one access; nvcc would split most of these stores.
template <class T, int width>
__device__ void store_whole(T* p, const Elements<T, width>& x) {
  if constexpr (sizeof x == sizeof(uint4))
    st_global(reinterpret_cast<uint4*>(p), __builtin_bit_cast(uint4, x));
  else if constexpr (sizeof x == sizeof(uint2))
    st_global(reinterpret_cast<uint2*>(p), __builtin_bit_cast(uint2, x));
  else
    store(p, x);
}

// Loads pixels x .. x + width of row y of image b's crop.
template <int width, int words>
__device__ void load_pixels(uint32_t (&v)[words], const InputPatches& op, int b, int y, int x) {
  const Crop crop = op.crops ? op.crops[b] : Crop{};
  const int row = crop.top + (crop.upside_down ? op.shape.size - 1 - y : y);
  // Column of the leftmost pixel.
  const int left = crop.left + (crop.flip ? op.shape.size - x - width : x);
  const bool row_in_bounds = row >= 0 && row < op.shape.height;
  const ptrdiff_t at =
      ((static_cast<ptrdiff_t>(b) * op.shape.height + row) * op.shape.width + left) * 3;
  const ptrdiff_t end = static_cast<ptrdiff_t>(op.shape.B) * op.shape.height * op.shape.width * 3;
  // The last word with a byte of these pixels must not extend past the images, which start at a
  // word boundary.
  if (width % 4 == 0 && row_in_bounds && left >= 0 && left + width <= op.shape.width &&
      at + 3 * width + 3 <= end) {
    load_words(v, op.images + at);
  } else {
#pragma unroll
    for (int k = 0; k < words; ++k) v[k] = 0;
#pragma unroll
    for (int k = 0; k < 3 * width; ++k) {
      const int column = left + k / 3;
      if (row_in_bounds && column >= 0 && column < op.shape.width)
        v[k / 4] |= uint32_t{op.images[at + k]} << k % 4 * 8;
    }
  }
  if (width > 1 && crop.flip) reverse_pixels<width>(v);
}

template <class T, int width>
__global__ void __launch_bounds__(threads) input_patches(InputPatches op, Normalisation norm) {
  await_kernel_ahead();
  const unsigned patch = op.shape.patch, grid = op.shape.size / patch, area = patch * patch;
  const unsigned row_pieces = patch / width, patch_pieces = row_pieces * patch;
  const unsigned piece = blockIdx.x * threads + threadIdx.x, image_patch = piece / patch_pieces;
  if (image_patch >= grid * grid) return;
  const int b = static_cast<int>(blockIdx.y);
  const int py = piece % patch_pieces / row_pieces, px = piece % row_pieces * width;
  const int y = image_patch / grid * patch + py, x = image_patch % grid * patch + px;

  uint32_t v[(3 * width + 3) / 4];
  load_pixels<width>(v, op, b, y, x);
  if (op.mixes) {
    uint32_t partner[(3 * width + 3) / 4];
    load_pixels<width>(partner, op, b ^ 1, y, x);
    const Mix mix = op.mixes[b];
    mix_words(v, partner, mix, y, x);
  }

  T* out = static_cast<T*>(op.out) +
           (static_cast<size_t>(b) * grid * grid + image_patch) * 3 * area + py * patch + px;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    Elements<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i)
      result.at[i] =
          from_float<T>(static_cast<float>(byte_of(v, 3 * i + c)) * norm.factor[c] + norm.shift[c]);
    store_whole(out + c * area, result);
  }
}

// ---- patches of one pixel -----------------------------------------------------------------------
// Loads pixels x .. last of row y, at most `pixels` of them.
template <int pixels, int words>
__device__ void load_span(uint32_t (&v)[words], const InputPatches& op, int b, int y, int x,
                          int last) {
  const Crop crop = op.crops ? op.crops[b] : Crop{};
  const int row = crop.top + (crop.upside_down ? op.shape.size - 1 - y : y);
  const int mirrored = crop.left + op.shape.size - 1;
  const int left = crop.flip ? mirrored - last : crop.left + x;  // column of the leftmost
  const int right = crop.flip ? mirrored - x : crop.left + last;
  const bool row_in_bounds = row >= 0 && row < op.shape.height;
  const ptrdiff_t at = (static_cast<ptrdiff_t>(b) * op.shape.height + row) * op.shape.width;
  const ptrdiff_t first = (at + (crop.flip ? right - pixels + 1 : left)) * 3;
  const ptrdiff_t end = static_cast<ptrdiff_t>(op.shape.B) * op.shape.height * op.shape.width * 3;
  if (row_in_bounds && left >= 0 && right < op.shape.width && first >= 0 &&
      first + 4 * words + 3 <= end) {
    load_words(v, op.images + first);
    if (crop.flip) reverse_pixels<pixels>(v);
  } else {
#pragma unroll
    for (int k = 0; k < words; ++k) v[k] = 0;
#pragma unroll
    for (int k = 0; k < 3 * pixels; ++k) {
      const int column = crop.flip ? right - k / 3 : left + k / 3;
      if (row_in_bounds && column >= 0 && column < op.shape.width)
        v[k / 4] |= uint32_t{op.images[(at + column) * 3 + k % 3]} << k % 4 * 8;
    }
  }
}

template <class T, int width>
__global__ void __launch_bounds__(threads) input_pixels(InputPatches op, Normalisation norm) {
  await_kernel_ahead();
  const unsigned row_pieces = op.shape.size * 3 / width;
  const unsigned piece = blockIdx.x * threads + threadIdx.x, y = piece / row_pieces;
  if (y >= unsigned(op.shape.size)) return;
  const int b = static_cast<int>(blockIdx.y);
  // Elements e .. e + width of the row: channel `phase` of pixel x up to a channel of pixel `last`.
  const unsigned e = (piece - y * row_pieces) * width;
  const int x = e / 3, phase = e % 3, last = (e + width - 1) / 3;
  constexpr int pixels = (width + 1) / 3 + 1;  // that a piece may touch
  constexpr int words = (3 * pixels + 3) / 4;

  uint32_t v[words];
  load_span<pixels>(v, op, b, y, x, last);
  if (op.mixes) {
    uint32_t partner[words];
    load_span<pixels>(partner, op, b ^ 1, y, x, last);
    const Mix mix = op.mixes[b];
    mix_words(v, partner, mix, y, x);
  }
#pragma unroll
  for (int k = 0; k < words; ++k) {
    const uint32_t high = k + 1 < words ? v[k + 1] : 0;
    v[k] = static_cast<uint32_t>((uint64_t{high} << 32 | v[k]) >> phase * 8);
  }

  float factor[3], shift[3];  // for elements 0, 1 and 2
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const int second = (k + 1) % 3, third = (k + 2) % 3;
    factor[k] = norm.factor[k], shift[k] = norm.shift[k];
    if (phase == 1) factor[k] = norm.factor[second], shift[k] = norm.shift[second];
    if (phase == 2) factor[k] = norm.factor[third], shift[k] = norm.shift[third];
  }
  Elements<T, width> result;
#pragma unroll
  for (int i = 0; i < width; ++i)
    result.at[i] = from_float<T>(static_cast<float>(byte_of(v, i)) * factor[i % 3] + shift[i % 3]);
  store_whole(static_cast<T*>(op.out) +
                  (static_cast<size_t>(b) * op.shape.size + y) * op.shape.size * 3 + e,
              result);
}

}  // namespace

template <>
void CudaKernels::run(const InputPatches& op, cudaStream_t stream) {
  const int B = op.shape.B, size = op.shape.size, patch = op.shape.patch;
  require(size <= 16384, "InputPatches", "size: %d, but at most 16384", size);
  require(B <= 65535, "InputPatches", "B: %d, but at most 65535", B);
  Normalisation norm;
  for (int c = 0; c < 3; ++c) {
    norm.factor[c] = 1.0f / (255.0f * op.shape.std[c]);
    norm.shift[c] = -op.shape.mean[c] / op.shape.std[c];
  }
  by_dtype(op.dtype, [&]<class T>() {
    constexpr int pack = Pack<T>::size;
    if (patch == 1 && in_packs<T>(size)) {
      const dim3 grid(ceil_div(size * size / pack * 3, threads), B);
      return launch<input_pixels<T, pack>>(grid, threads, 0, stream, op, norm);
    }
    const auto launch_patches = [&]<int width>() {
      const dim3 grid(ceil_div(size * size / width, threads), B);
      launch<input_patches<T, width>>(grid, threads, 0, stream, op, norm);
    };
    if (in_packs<T>(patch))
      launch_patches.template operator()<pack>();
    else if (patch % 4 == 0)
      launch_patches.template operator()<4>();
    else
      launch_patches.template operator()<1>();
  });
}

template <>
void PlainKernels::run(const InputPatches& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<input_patches_plain<T>>(size_t(op.shape.B) * op.shape.size * op.shape.size * 3,
                                        stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
