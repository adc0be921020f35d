// Puts the class token and, if prefix is 2, the distillation token before the patches and adds the
// position embedding to all tokens; also copies some tokens, which are the input of the heads.
//   out[b, 0] = class_token + position[0],   out[b, 1] = dist_token + position[1],
//   out[b, prefix + p] = patches[b, p] + position[prefix + p]
//   dpatches[b, p] = dout[b, prefix + p],   dclass_token (+)= sum_b dout[b, 0],
//   ddist_token (+)= sum_b dout[b, 1],   dposition (+)= sum_b dout[b]   = or += per accumulate
// In forward, threads divide the tokens; in backward, the elements of an image, whose sums over
// images stay in L1 and are added in the order of the images with any number of threads. Nothing is
// saved. One flop per 8 bytes: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;

// sum[i] (+)= sum_b dout[b * stride + i]; dout is also copied to copy[b * copy_stride + i], unless
// copy is null.
template <class T>
void sum_images(float* sum, T* copy, size_t copy_stride, const T* dout, size_t stride, int B, int n,
                bool accumulate) {
  for (int b = 0; b < B; ++b) {
    const T* from = dout + b * stride;
    T* to = copy ? copy + b * copy_stride : nullptr;
    const bool add = accumulate || b > 0;
    for_each(n, [&](int i, auto lanes) {
      const simd::vf d = lanes.load(from + i);
      if (to) lanes.store(to + i, d);
      lanes.store(sum + i, add ? lanes.load(sum + i) + d : d);
    });
  }
}

template <class T>
void forward(const EmbedForward& op) {
  const auto [B, P, C, prefix] = op.shape;
  const T* patches = as<T>(op.patches);
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < B; ++b) {
    for (int token = 0; token < prefix + P; ++token) {
      const float* position = op.position + size_t(token) * C;
      T* out = as<T>(op.out) + (size_t(b) * (prefix + P) + token) * C;
      const auto add = [&](const auto* inp) {
        for_each(C, [&](int i, auto lanes) {
          lanes.store(out + i, lanes.load(inp + i) + lanes.load(position + i));
        });
      };
      if (token < prefix)
        add(token == 0 ? op.class_token : op.dist_token);
      else
        add(patches + (size_t(b) * P + token - prefix) * C);
    }
  }
}

template <class T>
void backward(const EmbedBackward& op) {
  const auto [B, P, C, prefix] = op.shape;
  const T* dout = as<T>(op.dout);
  T* const no_copy = nullptr;
  const int tokens = prefix * C;
  const size_t image = size_t(P) * C, stride = tokens + image;
  sum_images(op.dclass_token, no_copy, 0, dout, stride, B, C, op.accumulate);
  if (prefix == 2) sum_images(op.ddist_token, no_copy, 0, dout + C, stride, B, C, op.accumulate);
  sum_images(op.dposition, no_copy, 0, dout, stride, B, tokens, op.accumulate);

  constexpr size_t block = 2048;
#pragma omp parallel for schedule(static)
  for (size_t begin = 0; begin < image; begin += block) {
    const int n = static_cast<int>(image - begin < block ? image - begin : block);
    sum_images(op.dposition + tokens + begin, as<T>(op.dpatches) + begin, image,
               dout + tokens + begin, stride, B, n, op.accumulate);
  }
}

}  // namespace

template <>
void CpuKernels::run(const EmbedForward& op) {
  with_type(op.dtype, [&]<class T>(T) { forward<T>(op); });
}

template <>
void CpuKernels::run(const EmbedBackward& op) {
  with_type(op.dtype, [&]<class T>(T) { backward<T>(op); });
}

template <>
void CpuKernels::run(const TakeTokensForward& op) {
  const auto [B, N, C, first, count] = op.shape;
  const size_t token = size_t(C) * size_of(op.dtype), taken = count * token;
  for (int b = 0; b < B; ++b)
    __builtin_memcpy(static_cast<char*>(op.out) + b * taken,
                     static_cast<const char*>(op.inp) + (size_t(b) * N + first) * token, taken);
}

template <>
void CpuKernels::run(const TakeTokensBackward& op) {
  const auto [B, N, C, first, count] = op.shape;
  const size_t token = size_t(C) * size_of(op.dtype), taken = count * token;
#pragma omp parallel for schedule(static)
  for (int b = 0; b < B; ++b) {
    char* dinp = static_cast<char*>(op.dinp) + (size_t(b) * N + first) * token;
    __builtin_memcpy(dinp, static_cast<const char*>(op.dout) + b * taken, taken);
    __builtin_memset(dinp + taken, 0, (N - first - count) * token);
  }
}

}  // namespace bv::BAREVISION_ISA
