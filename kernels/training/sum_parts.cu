// The sum of equal parts in a fixed tree; formulas: kernels.h. A thread sums 4 elements in accesses
// of 16 bytes (8 in 16 bits). Its partial sums are kept like a binary counter's digits: part p is
// added to as many of them as p + 1 has trailing zeros. The loop over the parts is unrolled, so all
// partial sums are in registers; for up to 8 parts, a separate kernel needs fewer registers.
// 4 (parts + 1) bytes per element in fp32: memory is the limit.
#include "kernels/cuda/plain.cuh"

namespace bv::BAREVISION_GPU {
namespace {

// ---- plain --------------------------------------------------------------------------------------
// Sums 1 to 2 * half parts; half 0: one part.
template <int half, class T>
__device__ float plain_tree(const T* inp, size_t stride, int parts) {
  if constexpr (half == 0) {
    return to_float(*inp);
  } else {
    if (parts <= half) return plain_tree<half / 2>(inp, stride, parts);
    return plain_tree<half / 2>(inp, stride, half) +
           plain_tree<half / 2>(inp + half * stride, stride, parts - half);
  }
}

template <class T>
__global__ void sum_parts_plain(SumParts op) {
  const size_t i = thread_number();
  if (i >= op.count) return;
  const T* inp = as<T>(op.inp) + i;
  float sum = 0;
  for (int p = 0; p < op.parts; p += SumParts::together) {
    const float next = plain_tree<SumParts::together / 2>(inp + p * op.stride, op.stride,
                                                          min(op.parts - p, SumParts::together));
    sum = p ? sum + next : next;
  }
  op.out[i] = sum * op.factor;
}

// ---- packs --------------------------------------------------------------------------------------
constexpr int threads = 256, width = 4;
using Four = Elements<float, width>;

template <class T>
__device__ Four load_4(const T* p, size_t left) {
  Four x{};
  if (left >= width) {
    const Elements<T, width> pack = load<width>(p);
    for (int i = 0; i < width; ++i) x.at[i] = to_float(pack.at[i]);
  } else {
    for (int i = 0; i < width; ++i)
      if (size_t(i) < left) x.at[i] = to_float(p[i]);
  }
  return x;
}

__device__ Four operator+(const Four& a, const Four& b) {
  Four sum;
  for (int i = 0; i < width; ++i) sum.at[i] = a.at[i] + b.at[i];
  return sum;
}

// Sums up to `most` parts of 4 elements, of which `left` exist.
template <int most, class T>
__device__ Four tree(const T* inp, size_t stride, int parts, size_t left) {
  constexpr int levels = 7;
  static_assert(most < 1 << levels);
  Four level[levels];
#pragma unroll
  for (int p = 0; p < most; ++p) {
    if (p >= parts) break;
    Four x = load_4(inp + p * stride, left);
#pragma unroll
    for (int l = 0; l < levels; ++l) {
      if (!(p >> l & 1)) {
        level[l] = x;
        break;
      }
      x = level[l] + x;
    }
  }
  Four sum{};
  bool first = true;
#pragma unroll
  for (int l = 0; l < levels; ++l)
    if (most >> l && parts >> l & 1) {
      sum = first ? level[l] : level[l] + sum;
      first = false;
    }
  return sum;
}

template <class T, int most>
__global__ void __launch_bounds__(threads) sum_parts(SumParts op) {
  await_kernel_ahead();
  const size_t at = (size_t(blockIdx.x) * threads + threadIdx.x) * width;
  if (at >= op.count) return;
  const size_t left = op.count - at;
  const T* inp = static_cast<const T*>(op.inp) + at;
  Four sum = tree<most>(inp, op.stride, min(op.parts, most), left);
  if constexpr (most == SumParts::together)
    for (int p = most; p < op.parts; p += most)
      sum = sum + tree<most>(inp + p * op.stride, op.stride, min(op.parts - p, most), left);
  for (int i = 0; i < width; ++i) sum.at[i] *= op.factor;
  if (left >= width) return store(op.out + at, sum);
  for (int i = 0; i < width; ++i)
    if (size_t(i) < left) op.out[at + i] = sum.at[i];
}

}  // namespace

template <>
void CudaKernels::run(const SumParts& op, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(op.count, size_t{threads} * width));
  by_dtype(op.dtype, [&]<class T>() {
    if (op.parts <= 8)
      launch<sum_parts<T, 8>>(blocks, threads, 0, stream, op);
    else
      launch<sum_parts<T, SumParts::together>>(blocks, threads, 0, stream, op);
  });
}

template <>
void PlainKernels::run(const SumParts& op, cudaStream_t stream) {
  by_dtype(op.dtype, [&]<class T>() { launch_each<sum_parts_plain<T>>(op.count, stream, op); });
}

}  // namespace bv::BAREVISION_GPU
