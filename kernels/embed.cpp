// Tokens: the class token before the patches, plus a position embedding for all; and the class
// token's row alone, the head's input.
//   out[b, 0] = class_token + position[0],   out[b, 1 + p] = patches[b, p] + position[1 + p]
//   dpatches[b, p] = dout[b, 1 + p],   dclass_token (+)= sum_b dout[b, 0],
//   dposition (+)= sum_b dout[b]                                  = or += by accumulate
// Threads share the tokens forward, and backward stretches of an image's elements, whose sums over
// the images stay in L1 and are added in the images' order whatever the number of threads.
// Nothing is saved. One flop for 8 bytes: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;

// sum[i] (+)= sum_b dout[b * stride + i]; each is also written to copy[b * copy_stride + i], or not
// where copy is null.
void sum_images(float* sum, float* copy, size_t copy_stride, const float* dout, size_t stride,
                int B, int n, bool accumulate) {
  for (int b = 0; b < B; ++b) {
    const float* from = dout + b * stride;
    float* to = copy ? copy + b * copy_stride : nullptr;
    const bool add = accumulate || b > 0;
    for_each(n, [&](int i, auto lanes) {
      const simd::vf d = lanes.load(from + i);
      if (to) lanes.store(to + i, d);
      lanes.store(sum + i, add ? lanes.load(sum + i) + d : d);
    });
  }
}

}  // namespace

template <>
void CpuKernels::run(const EmbedForward& op) {
  const auto [B, P, C] = op.shape;
  const float* patches = floats(op.patches);
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < B; ++b) {
    for (int token = 0; token <= P; ++token) {
      const float* position = op.position + size_t(token) * C;
      const float* inp = token ? patches + (size_t(b) * P + token - 1) * C : op.class_token;
      float* out = floats(op.out) + (size_t(b) * (P + 1) + token) * C;
      for_each(C, [&](int i, auto lanes) {
        lanes.store(out + i, lanes.load(inp + i) + lanes.load(position + i));
      });
    }
  }
}

template <>
void CpuKernels::run(const EmbedBackward& op) {
  const auto [B, P, C] = op.shape;
  const float* dout = floats(op.dout);
  const size_t image = size_t(P) * C, stride = image + C;
  sum_images(op.dclass_token, nullptr, 0, dout, stride, B, C, op.accumulate);
  sum_images(op.dposition, nullptr, 0, dout, stride, B, C, op.accumulate);

  constexpr size_t block = 2048;
#pragma omp parallel for schedule(static)
  for (size_t begin = 0; begin < image; begin += block) {
    const int n = static_cast<int>(image - begin < block ? image - begin : block);
    sum_images(op.dposition + C + begin, floats(op.dpatches) + begin, image, dout + C + begin,
               stride, B, n, op.accumulate);
  }
}

template <>
void CpuKernels::run(const ClassTokenForward& op) {
  const size_t row = size_t(op.shape.C) * size_of(op.dtype);
  for (int b = 0; b < op.shape.B; ++b)
    __builtin_memcpy(static_cast<char*>(op.out) + b * row,
                     static_cast<const char*>(op.inp) + b * op.shape.N * row, row);
}

template <>
void CpuKernels::run(const ClassTokenBackward& op) {
  const size_t row = size_t(op.shape.C) * size_of(op.dtype);
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.shape.B; ++b) {
    char* dinp = static_cast<char*>(op.dinp) + b * op.shape.N * row;
    __builtin_memcpy(dinp, static_cast<const char*>(op.dout) + b * row, row);
    __builtin_memset(dinp + row, 0, (op.shape.N - 1) * row);
  }
}

}  // namespace bv::BAREVISION_ISA
