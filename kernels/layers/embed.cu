// Puts the class token and, if prefix is 2, the distillation token before the patches and adds the
// position embedding to all tokens; also copies some tokens, which are the input of the heads.
//   out[b, 0] = class_token + position[0],   out[b, 1] = dist_token + position[1],
//   out[b, prefix + p] = patches[b, p] + position[prefix + p]
//   dpatches[b, p] = dout[b, prefix + p],   dclass_token (+)= sum_b dout[b, 0],
//   ddist_token (+)= sum_b dout[b, 1],   dposition (+)= sum_b dout[b]   = or += per accumulate
// Nothing is saved. An image's tokens are one row of (prefix + P) C elements, read 16 bytes at a
// time (one element if C is not a multiple of that). In forward, a thread computes one pack of the
// row in each of 4 images: a position is read once for all four, and 4 loads are in flight. In
// backward, a block sums 16 neighbouring packs: each of its 16 groups of threads adds every 16th
// image, 4 loads at a time, and the groups' sums are added in order. One flop per 4 bytes (16-bit)
// or 8: memory is the limit.
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void embed_forward_plain(EmbedForward op) {
  const auto [B, P, C, prefix] = op.shape;
  const int tokens = prefix + P;
  const size_t i = thread_number();
  if (i >= size_t(B) * tokens * C) return;
  const int c = i % C, token = i / C % tokens;
  const size_t b = i / C / tokens;
  float x;
  if (token >= prefix)
    x = to_float(as<T>(op.patches)[(b * P + token - prefix) * C + c]);
  else
    x = token == 0 ? op.class_token[c] : op.dist_token[c];
  as<T>(op.out)[i] = from_float<T>(x + op.position[token * C + c]);
}

template <class T>
__global__ void embed_backward_patches_plain(EmbedBackward op) {
  const auto [B, P, C, prefix] = op.shape;
  const size_t i = thread_number(), image = size_t(P) * C, b = i / image;
  if (b >= size_t(B)) return;
  as<T>(op.dpatches)[i] = as<T>(op.dout)[b * (prefix + P) * C + prefix * C + i % image];
}

// A thread adds up the images' gradients of an element of the position embedding.
template <class T>
__global__ void embed_backward_position_plain(EmbedBackward op) {
  const auto [B, P, C, prefix] = op.shape;
  const size_t image = size_t(prefix + P) * C, i = thread_number();
  if (i >= image) return;
  float sum = 0;
  for (int b = 0; b < B; ++b) sum += to_float(as<T>(op.dout)[b * image + i]);
  set_or_add(op.dposition[i], sum, op.accumulate);
  if (i < size_t(C)) set_or_add(op.dclass_token[i], sum, op.accumulate);
  if (prefix == 2 && i / C == 1) set_or_add(op.ddist_token[i - C], sum, op.accumulate);
}

template <class T>
__global__ void take_tokens_forward_plain(TakeTokensForward op) {
  const auto [B, N, C, first, count] = op.shape;
  const size_t i = thread_number(), taken = size_t(count) * C, b = i / taken;
  if (b >= size_t(B)) return;
  as<T>(op.out)[i] = as<T>(op.inp)[(b * N + first) * C + i % taken];
}

template <class T>
__global__ void take_tokens_backward_plain(TakeTokensBackward op) {
  const auto [B, N, C, first, count] = op.shape;
  const size_t rest = size_t(N - first) * C, taken = size_t(count) * C;
  const size_t i = thread_number(), b = i / rest, at = i % rest;
  if (b >= size_t(B)) return;
  as<T>(op.dinp)[(b * N + first) * C + at] = at < taken ? as<T>(op.dout)[b * taken + at] : T{};
}

constexpr int threads = 256;
constexpr int images_at_once = 4;  // loads in flight per thread

// ---- forward ------------------------------------------------------------------------------------
template <class T, int width>
__global__ void __launch_bounds__(threads) embed_forward(EmbedForward op) {
  await_kernel_ahead();
  const auto [B, P, C, prefix] = op.shape;
  const int tokens = prefix * C, row = tokens + P * C;
  const int e = static_cast<int>(blockIdx.x * threads + threadIdx.x) * width;
  if (e >= row) return;
  const int first = static_cast<int>(blockIdx.y) * images_at_once;
  const auto position = load<width>(op.position + e);
  T* out = static_cast<T*>(op.out) + static_cast<size_t>(first) * row + e;
  if (e < tokens) {
    const auto token = load<width>(e < C ? op.class_token + e : op.dist_token + (e - C));
    Elements<T, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k) sum.at[k] = from_float<T>(token.at[k] + position.at[k]);
#pragma unroll
    for (int i = 0; i < images_at_once; ++i)
      if (first + i < B) store(out + static_cast<size_t>(i) * row, sum);
    return;
  }
  const size_t image = static_cast<size_t>(P) * C;
  const T* patches = static_cast<const T*>(op.patches) + first * image + (e - tokens);
  Elements<T, width> inp[images_at_once];
#pragma unroll
  for (int i = 0; i < images_at_once; ++i)
    if (first + i < B) inp[i] = load<width>(patches + i * image);
#pragma unroll
  for (int i = 0; i < images_at_once; ++i) {
    Elements<T, width> sum;
#pragma unroll
    for (int k = 0; k < width; ++k)
      sum.at[k] = from_float<T>(to_float(inp[i].at[k]) + position.at[k]);
    if (first + i < B) store(out + static_cast<size_t>(i) * row, sum);
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
  await_kernel_ahead();
  const auto [B, P, C, prefix] = op.shape;
  auto& sums = shared<EmbedBackwardShared<width>>().sum;
  const int tokens = prefix * C, row = tokens + P * C;
  const int column = threadIdx.x % columns, group = threadIdx.x / columns;
  const int first = static_cast<int>(blockIdx.x) * columns * width;
  const int e = first + column * width;
  if (e < row) {
    const T* dout = static_cast<const T*>(op.dout) + e;
    const size_t image = static_cast<size_t>(P) * C;
    T* dpatches = static_cast<T*>(op.dpatches) + (e - tokens);
    float sum[width] = {};
    for (int b = group; b < B; b += groups * images_at_once) {
      Elements<T, width> d[images_at_once];
#pragma unroll
      for (int i = 0; i < images_at_once; ++i)
        if (b + i * groups < B) d[i] = load<width>(dout + size_t(b + i * groups) * row);
#pragma unroll
      for (int i = 0; i < images_at_once; ++i) {
        if (b + i * groups < B) {
          if (e >= tokens) store(dpatches + (b + i * groups) * image, d[i]);
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
    if (at < tokens) {
      float& token = at < C ? op.dclass_token[at] : op.ddist_token[at - C];
      token = op.accumulate ? token + total : total;
    }
  }
}

// ---- some tokens --------------------------------------------------------------------------------
// Both kernels copy bytes, whatever the dtype. An image has `row` Words, `rest` of them from token
// `first` on, where inp and dinp point; the first `taken` of these are copied, and backward sets
// the others to 0.
template <class Word>
__global__ void __launch_bounds__(threads)
    take_tokens_forward(Word* out, const Word* inp, int row, int taken) {
  await_kernel_ahead();
  const int w = static_cast<int>(blockIdx.y * threads + threadIdx.x);
  if (w >= taken) return;
  const size_t b = blockIdx.x;
  out[b * taken + w] = inp[b * row + w];
}

template <class Word>
__global__ void __launch_bounds__(threads)
    take_tokens_backward(Word* dinp, const Word* dout, int row, int rest, int taken) {
  await_kernel_ahead();
  const size_t b = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * threads * images_at_once;
#pragma unroll
  for (int i = 0; i < images_at_once; ++i) {
    const int w = first + i * threads + static_cast<int>(threadIdx.x);
    if (w < rest) dinp[b * row + w] = w < taken ? dout[b * taken + w] : Word{};
  }
}

// ---- operations ---------------------------------------------------------------------------------
constexpr int max_blocks = 65535;  // of a grid's y

void require_size(const char* name, int tokens, int C) {
  require(int64_t{tokens} * C <= max_size, name,
          "an image's %d tokens of %d channels are more than 2^30 elements", tokens, C);
}

// Calls f<Word>(the Words in C elements): Word is uint4 if 16 bytes divide these, else uint16_t.
template <class F>
void by_word(DType dtype, int C, F f) {
  const size_t bytes = C * size_of(dtype);
  if (bytes % sizeof(uint4) == 0)
    f.template operator()<uint4>(static_cast<int>(bytes / sizeof(uint4)));
  else
    f.template operator()<uint16_t>(static_cast<int>(bytes / sizeof(uint16_t)));
}

}  // namespace

template <>
void CudaKernels::run(const EmbedForward& op, cudaStream_t stream) {
  const auto [B, P, C, prefix] = op.shape;
  require_size("EmbedForward", prefix + P, C);
  require(B <= max_blocks * images_at_once, "EmbedForward", "B: at most %d",
          max_blocks * images_at_once);
  by_width(op.dtype, C, [&]<class T, int width>() {
    const dim3 grid(ceil_div((prefix + P) * C, threads * width), ceil_div(B, images_at_once));
    launch<embed_forward<T, width>>(grid, threads, 0, stream, op);
  });
}

template <>
void CudaKernels::run(const EmbedBackward& op, cudaStream_t stream) {
  const auto [B, P, C, prefix] = op.shape;
  require_size("EmbedBackward", prefix + P, C);
  by_width(op.dtype, C, [&]<class T, int width>() {
    launch<embed_backward<T, width>>(ceil_div((prefix + P) * C, columns * width), threads,
                                     sizeof(EmbedBackwardShared<width>), stream, op);
  });
}

template <>
void CudaKernels::run(const TakeTokensForward& op, cudaStream_t stream) {
  const auto [B, N, C, first, count] = op.shape;
  require_size("TakeTokensForward", N, C);
  by_word(op.dtype, C, [&]<class Word>(int words) {
    const int taken = count * words;
    const dim3 grid(B, ceil_div(taken, threads));
    require(grid.y <= max_blocks, "TakeTokensForward", "C: %d is too large", C);
    const Word* inp = static_cast<const Word*>(op.inp) + first * words;
    launch<take_tokens_forward<Word>>(grid, threads, 0, stream, static_cast<Word*>(op.out), inp,
                                      N * words, taken);
  });
}

template <>
void CudaKernels::run(const TakeTokensBackward& op, cudaStream_t stream) {
  const auto [B, N, C, first, count] = op.shape;
  require_size("TakeTokensBackward", N, C);
  by_word(op.dtype, C, [&]<class Word>(int words) {
    const int rest = (N - first) * words;
    const dim3 grid(B, ceil_div(rest, threads * images_at_once));
    require(grid.y <= max_blocks, "TakeTokensBackward", "N C: %d x %d is too large", N, C);
    Word* dinp = static_cast<Word*>(op.dinp) + first * words;
    launch<take_tokens_backward<Word>>(grid, threads, 0, stream, dinp,
                                       static_cast<const Word*>(op.dout), N * words, rest,
                                       count * words);
  });
}

template <>
void PlainKernels::run(const EmbedForward& op, cudaStream_t stream) {
  const auto [B, P, C, prefix] = op.shape;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<embed_forward_plain<T>>(size_t(B) * (prefix + P) * C, stream, op);
  });
}

template <>
void PlainKernels::run(const EmbedBackward& op, cudaStream_t stream) {
  const auto [B, P, C, prefix] = op.shape;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<embed_backward_patches_plain<T>>(size_t(B) * P * C, stream, op);
    launch_each<embed_backward_position_plain<T>>(size_t(prefix + P) * C, stream, op);
  });
}

template <>
void PlainKernels::run(const TakeTokensForward& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<take_tokens_forward_plain<T>>(size_t(op.shape.B) * op.shape.count * op.shape.C,
                                              stream, op);
  });
}

template <>
void PlainKernels::run(const TakeTokensBackward& op, cudaStream_t stream) {
  const auto [B, N, C, first, count] = op.shape;
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<take_tokens_backward_plain<T>>(size_t(B) * (N - first) * C, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
