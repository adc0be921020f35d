// Tokens: the class token before the patches and a position embedding over all, and the way back;
// the class token's row alone as the head's input.
//   out[b, 0] = class_token + position[0],   out[b, 1 + p] = patches[b, p] + position[1 + p]
//   dpatches[b, p] = dout[b, 1 + p],   dclass_token (+)= sum_b dout[b, 0],
//   dposition (+)= sum_b dout[b]                                  = or += by accumulate
// An image's tokens are one row of (1 + P) C elements. Forward, a thread has 16 bytes of a row in
// each of 4 images, so that a position is read once for them and 4 loads are under way. Backward, a
// block has 16 neighbouring columns of 16 bytes: its 16 groups of threads sum each 16th image, 4
// loads at a time, and the groups' sums are added in order. Nothing is saved.
// One flop for 4 bytes (16-bit) or 8: memory is the limit. To keep it busy, an H200 wants about 24 KB
// under way on each SM. Forward: 48 registers let 1280 threads live, each with 64 bytes: 80 KB.
// Backward, 48 registers and 8 KB of shared memory: 5 blocks of 256 threads on an SM; ViT-Tiny's 197
// x 192 at B = 256 in 16 bits makes 296 blocks, 2.2 for each of 132 SMs: 36 KB.
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/pack.cuh"

namespace bv::BAREVISION_GPU {
namespace {

constexpr int threads = 256;
constexpr int images_at_once = 4;  // loads of a thread that are under way together

// ---- forward ------------------------------------------------------------------------------------
template <class T, int width>
__global__ void __launch_bounds__(threads) embed_forward(EmbedForward op) {
  const int row = (1 + op.shape.P) * op.shape.C;
  const int e = static_cast<int>(blockIdx.x * threads + threadIdx.x) * width;
  if (e >= row) return;
  const int first = static_cast<int>(blockIdx.y) * images_at_once;
  const auto position = load<width>(op.position + e);
  T* out = static_cast<T*>(op.out) + static_cast<size_t>(first) * row + e;
  if (e < op.shape.C) {
    const auto token = load<width>(op.class_token + e);
    Elements<T, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k) sum.at[k] = from_float<T>(token.at[k] + position.at[k]);
#pragma unroll
    for (int i = 0; i < images_at_once; ++i)
      if (first + i < op.shape.B) store(out + static_cast<size_t>(i) * row, sum);
    return;
  }
  const size_t image = static_cast<size_t>(op.shape.P) * op.shape.C;
  const T* patches = static_cast<const T*>(op.patches) + first * image + (e - op.shape.C);
  Elements<T, width> inp[images_at_once];
#pragma unroll
  for (int i = 0; i < images_at_once; ++i)
    if (first + i < op.shape.B) inp[i] = load<width>(patches + i * image);
#pragma unroll
  for (int i = 0; i < images_at_once; ++i) {
    Elements<T, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k)
      sum.at[k] = from_float<T>(to_float(inp[i].at[k]) + position.at[k]);
    if (first + i < op.shape.B) store(out + static_cast<size_t>(i) * row, sum);
  }
}

// ---- backward -----------------------------------------------------------------------------------
constexpr int columns = 16, groups = threads / columns;

template <int width>
struct EmbedBackwardShared {
  float sum[groups][columns * width];
};

template <class T, int width>
__global__ void __launch_bounds__(threads) embed_backward(EmbedBackward op) {
  auto& sums = shared<EmbedBackwardShared<width>>().sum;
  const int row = (1 + op.shape.P) * op.shape.C;
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int first = static_cast<int>(blockIdx.x) * columns * width;
  const int e = first + column * width;
  if (e < row) {
    const T* dout = static_cast<const T*>(op.dout) + e;
    const size_t image = static_cast<size_t>(op.shape.P) * op.shape.C;
    T* dpatches = static_cast<T*>(op.dpatches) + (e - op.shape.C);
    float sum[width];
#pragma unroll
    for (int k = 0; k < width; ++k) sum[k] = 0;
    for (int b = group; b < op.shape.B; b += groups * images_at_once) {
      Elements<T, width> d[images_at_once];
#pragma unroll
      for (int i = 0; i < images_at_once; ++i)
        if (b + i * groups < op.shape.B) d[i] = load<width>(dout + size_t(b + i * groups) * row);
#pragma unroll
      for (int i = 0; i < images_at_once; ++i) {
        if (b + i * groups < op.shape.B) {
          if (e >= op.shape.C) store(dpatches + (b + i * groups) * image, d[i]);
#pragma unroll
          for (int k = 0; k < width; ++k) sum[k] += to_float(d[i].at[k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < width; ++k) sums[group][column * width + k] = sum[k];
  }
  __syncthreads();
  const int at = first + static_cast<int>(threadIdx.x);
  if (threadIdx.x < columns * width && at < row) {
    float total = 0;
#pragma unroll
    for (int g = 0; g < groups; ++g) total += sums[g][threadIdx.x];
    op.dposition[at] = op.accumulate ? op.dposition[at] + total : total;
    if (at < op.shape.C) op.dclass_token[at] = op.accumulate ? op.dclass_token[at] + total : total;
  }
}

// ---- class token --------------------------------------------------------------------------------
// Both move bytes, whatever their type: a row is `words` Words.
template <class Word>
__global__ void __launch_bounds__(threads)
    class_token_forward(Word* out, const Word* inp, int N, int words) {
  const int w = static_cast<int>(blockIdx.y * threads + threadIdx.x);
  if (w >= words) return;
  const size_t b = blockIdx.x;
  out[b * words + w] = inp[b * N * words + w];
}

template <class Word>
__global__ void __launch_bounds__(threads)
    class_token_backward(Word* dinp, const Word* dout, int N, int words) {
  const int n = N * words;  // of an image
  const size_t b = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * threads * images_at_once;
#pragma unroll
  for (int i = 0; i < images_at_once; ++i) {
    const int w = first + i * threads + static_cast<int>(threadIdx.x);
    if (w < n) dinp[b * n + w] = w < words ? dout[b * words + w] : Word{};
  }
}

// ---- operations ---------------------------------------------------------------------------------
constexpr int max_blocks = 65535;  // of a grid's y

void require_sizes(const char* name, int B, int tokens, int C) {
  require(int64_t{tokens} * C <= (1 << 30), name,
          "an image's %d tokens of %d channels are more than 2^30 elements", tokens, C);
}

// f<Word>(words): of a row of C elements.
template <class F>
void by_word(DType dtype, int C, F f) {
  const size_t bytes = C * size_of(dtype);
  if (bytes % sizeof(uint4) == 0)
    f.template operator()<uint4>(static_cast<int>(bytes / sizeof(uint4)));
  else
    f.template operator()<uint16_t>(static_cast<int>(bytes / sizeof(uint16_t)));
}

unsigned blocks(int count, int each) { return static_cast<unsigned>(ceil_div(count, each)); }

}  // namespace

template <>
void CudaKernels::run(const EmbedForward& op, cudaStream_t stream) {
  require_sizes("EmbedForward", op.shape.B, op.shape.P, op.shape.C);
  require(op.shape.B <= max_blocks * images_at_once, "EmbedForward", "B: at most %d",
          max_blocks * images_at_once);
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    const dim3 grid(blocks((1 + op.shape.P) * op.shape.C, threads * width),
                    blocks(op.shape.B, images_at_once));
    launch<embed_forward<T, width>>(grid, threads, 0, stream, op);
  });
}

template <>
void CudaKernels::run(const EmbedBackward& op, cudaStream_t stream) {
  require_sizes("EmbedBackward", op.shape.B, op.shape.P, op.shape.C);
  by_width(op.dtype, op.shape.C, [&]<class T, int width>() {
    launch<embed_backward<T, width>>(blocks((1 + op.shape.P) * op.shape.C, columns * width),
                                     threads, sizeof(EmbedBackwardShared<width>), stream, op);
  });
}

template <>
void CudaKernels::run(const ClassTokenForward& op, cudaStream_t stream) {
  require_sizes("ClassTokenForward", op.shape.B, op.shape.N, op.shape.C);
  by_word(op.dtype, op.shape.C, [&]<class Word>(int words) {
    const dim3 grid(op.shape.B, blocks(words, threads));
    require(grid.y <= max_blocks, "ClassTokenForward", "C: %d is too large", op.shape.C);
    launch<class_token_forward<Word>>(grid, threads, 0, stream, static_cast<Word*>(op.out),
                                      static_cast<const Word*>(op.inp), op.shape.N, words);
  });
}

template <>
void CudaKernels::run(const ClassTokenBackward& op, cudaStream_t stream) {
  require_sizes("ClassTokenBackward", op.shape.B, op.shape.N, op.shape.C);
  by_word(op.dtype, op.shape.C, [&]<class Word>(int words) {
    const dim3 grid(op.shape.B, blocks(op.shape.N * words, threads * images_at_once));
    require(grid.y <= max_blocks, "ClassTokenBackward", "N C: %d x %d is too large", op.shape.N,
            op.shape.C);
    launch<class_token_backward<Word>>(grid, threads, 0, stream, static_cast<Word*>(op.dinp),
                                       static_cast<const Word*>(op.dout), op.shape.N, words);
  });
}

}  // namespace bv::BAREVISION_GPU
