// Dropout, forward and, on gradients, backward:
//   out = keep ? inp / (1 - drop) : 0
// Element i of image b is kept if uniform(word i % 4 of philox(seed, i / 4, position + b, epoch,
// layer)) >= drop. Nothing is saved: backward draws the same numbers again.
// Grid: y is the image, x covers its elements. A thread computes two packs of 16 bytes (or
// twice 4 single elements if the sizes are not multiples of a pack); one draw serves 4 elements.
// 4 or 8 bytes and about 15 instructions per element: memory is the limit.
#include "kernels/cuda/plain.cuh"
#include "kernels/philox.h"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
template <class T>
__global__ void dropout_plain(Dropout op) {
  const auto [B, elements] = op.shape;
  const size_t i = thread_number();
  if (i >= size_t(B) * elements) return;
  const uint32_t b = i / elements, decision = i % elements;
  const Philox4 words =
      philox(op.params->seed, decision / 4, op.params->position + b, op.params->epoch, op.layer);
  const bool keep = uniform(words.at[decision % 4]) >= op.drop;
  as<T>(op.out)[i] = from_float<T>(keep ? to_float(as<T>(op.inp)[i]) / (1 - op.drop) : 0);
}

// ---- packs --------------------------------------------------------------------------------------

constexpr int threads = 256;
constexpr int pieces = 2;  // per thread, loaded together

__device__ Philox4 draw(const Dropout& op, const StepParams& params, int b, unsigned decision) {
  return philox(params.seed, decision / 4, params.position + b, params.epoch, op.layer);
}

// A piece is `width` elements, or 4 if width is 1.
template <class T, int width>
__global__ void __launch_bounds__(threads) drop_elements(Dropout op, float factor) {
  await_kernel_ahead();
  constexpr int n = width < 4 ? 4 : width;
  const int b = static_cast<int>(blockIdx.y);
  const size_t image = static_cast<size_t>(b) * op.shape.elements;
  const T* inp = static_cast<const T*>(op.inp) + image;
  T* out = static_cast<T*>(op.out) + image;
  const unsigned first = (blockIdx.x * pieces * threads + threadIdx.x) * n;
  const unsigned elements = op.shape.elements;
  Elements<T, width> x[pieces][n / width];
#pragma unroll
  for (int p = 0; p < pieces; ++p)
#pragma unroll
    for (int k = 0; k < n; k += width) {
      const unsigned e = first + p * threads * n + k;
      if (e < elements) x[p][k / width] = load<width>(inp + e);
    }
  const StepParams params = *op.params;
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
#pragma unroll
    for (int k = 0; k < n; k += 4) {
      const Philox4 words = draw(op, params, b, first + p * threads * n + k);
#pragma unroll
      for (int i = k; i < k + 4; ++i) {
        T& at = x[p][i / width].at[i % width];
        at = from_float<T>(uniform(words.at[i % 4]) >= op.drop ? to_float(at) * factor : 0);
      }
    }
#pragma unroll
    for (int k = 0; k < n; k += width) {
      const unsigned e = first + p * threads * n + k;
      if (e < elements) store(out + e, x[p][k / width]);
    }
  }
}

}  // namespace

template <>
void CudaKernels::run(const Dropout& op, cudaStream_t stream) {
  const auto [B, elements] = op.shape;
  require(B <= 65535, "Dropout", "B: at most 65535");
  by_dtype(op.dtype, [&]<class T>() {
    constexpr int pack = Pack<T>::size;
    const auto drop = [&]<int width, int piece>() {
      const int64_t blocks = ceil_div(int64_t{elements}, int64_t{pieces * threads * piece});
      launch<drop_elements<T, width>>(dim3(unsigned(blocks), B), threads, 0, stream, op,
                                      1.0f / (1.0f - op.drop));
    };
    if (in_packs<T>(elements))
      drop.template operator()<pack, pack>();
    else
      drop.template operator()<1, 4>();
  });
}

template <>
void PlainKernels::run(const Dropout& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() {
    launch_each<dropout_plain<T>>(size_t(op.shape.B) * op.shape.elements, stream, op);
  });
}

}  // namespace bv::BAREVISION_GPU
