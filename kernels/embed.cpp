// Tokens: the class token before the patches and a position embedding over all, and the way back;
// the class token's row alone as the head's input.
//   out[b, 0] = class_token + position[0],   out[b, 1 + p] = patches[b, p] + position[1 + p]
//   dpatches[b, p] = dout[b, 1 + p],   dclass_token (+)= sum_b dout[b, 0],
//   dposition (+)= sum_b dout[b]
// Threads share out tokens forward, and backward stretches of an image's elements, whose sums over
// the images stay in L1 and are added in the images' order whatever the number of threads.
// One flop for 8 bytes: memory is the limit.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/require.h"
#include "kernels/cpu/simd.h"

namespace bv::BAREVISION_ISA {
namespace {

using simd::for_each;

// sum[i] = or += , over images, of dout[b * stride + i], which `copy` (or null) receives as well.
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

void CpuKernels::run(const EmbedForward& op, Stream) {
  require(op.B > 0 && op.P > 0 && op.C > 0, "EmbedForward", "B, P and C must be positive");
  require(op.dtype == DType::fp32, "EmbedForward", "dtype must be fp32 on this device");
  require(op.out && op.patches && op.class_token && op.position, "EmbedForward",
          "out, patches, class_token and position must not be null");
  const float* patches = static_cast<const float*>(op.patches);
#pragma omp parallel for collapse(2) schedule(static)
  for (int b = 0; b < op.B; ++b) {
    for (int token = 0; token <= op.P; ++token) {
      const float* position = op.position + size_t(token) * op.C;
      const float* inp = token ? patches + (size_t(b) * op.P + token - 1) * op.C : op.class_token;
      float* out = static_cast<float*>(op.out) + (size_t(b) * (op.P + 1) + token) * op.C;
      for_each(op.C, [&](int i, auto lanes) {
        lanes.store(out + i, lanes.load(inp + i) + lanes.load(position + i));
      });
    }
  }
}

void CpuKernels::run(const EmbedBackward& op, Stream) {
  require(op.B > 0 && op.P > 0 && op.C > 0, "EmbedBackward", "B, P and C must be positive");
  require(op.dtype == DType::fp32, "EmbedBackward", "dtype must be fp32 on this device");
  require(op.dpatches && op.dclass_token && op.dposition && op.dout, "EmbedBackward",
          "dpatches, dclass_token, dposition and dout must not be null");
  const float* dout = static_cast<const float*>(op.dout);
  float* dpatches = static_cast<float*>(op.dpatches);
  const size_t image = size_t(op.P) * op.C, stride = image + op.C;
  sum_images(op.dclass_token, nullptr, 0, dout, stride, op.B, op.C, op.accumulate);
  sum_images(op.dposition, nullptr, 0, dout, stride, op.B, op.C, op.accumulate);

  constexpr size_t block = 2048;
#pragma omp parallel for schedule(static)
  for (size_t begin = 0; begin < image; begin += block) {
    const int n = static_cast<int>(image - begin < block ? image - begin : block);
    sum_images(op.dposition + op.C + begin, dpatches + begin, image, dout + op.C + begin, stride,
               op.B, n, op.accumulate);
  }
}

void CpuKernels::run(const ClassTokenForward& op, Stream) {
  require(op.B > 0 && op.N > 0 && op.C > 0, "ClassTokenForward", "B, N and C must be positive");
  require(op.out && op.inp, "ClassTokenForward", "out and inp must not be null");
  const size_t row = size_t(op.C) * size_of(op.dtype);
  for (int b = 0; b < op.B; ++b)
    __builtin_memcpy(static_cast<char*>(op.out) + b * row,
                     static_cast<const char*>(op.inp) + b * op.N * row, row);
}

void CpuKernels::run(const ClassTokenBackward& op, Stream) {
  require(op.B > 0 && op.N > 0 && op.C > 0, "ClassTokenBackward", "B, N and C must be positive");
  require(op.dinp && op.dout, "ClassTokenBackward", "dinp and dout must not be null");
  const size_t row = size_t(op.C) * size_of(op.dtype);
#pragma omp parallel for schedule(static)
  for (int b = 0; b < op.B; ++b) {
    char* dinp = static_cast<char*>(op.dinp) + b * op.N * row;
    __builtin_memcpy(dinp, static_cast<const char*>(op.dout) + b * row, row);
    __builtin_memset(dinp + row, 0, (op.N - 1) * row);
  }
}

}  // namespace bv::BAREVISION_ISA
