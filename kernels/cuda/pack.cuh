// Elements of any dtype as floats, and memory 16 bytes at a time.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/kernels.h"

namespace bv::BAREVISION_GPU {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(x);
  else
    return x;
}

// One access to memory: 16 bytes.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T at[size];
};

// Whether a row of `elements` Ts, dense in memory, can be read in packs.
template <class T>
constexpr bool in_packs(size_t elements) {
  return elements % Pack<T>::size == 0;
}

template <class T>
__device__ Pack<T> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T>*>(p);
}
template <class T>
__device__ void store_pack(T* p, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(p) = pack;
}

// n neighbours, at a multiple of n elements: 16 bytes an access, or all where they are fewer.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Elements {
  T at[n];
};
template <int n, class T>
__device__ Elements<T, n> load(const T* p) {
  return *reinterpret_cast<const Elements<T, n>*>(p);
}
template <int n, class T>
__device__ void store(T* p, const Elements<T, n>& elements) {
  *reinterpret_cast<Elements<T, n>*>(p) = elements;
}

// Calls f.template operator()<T>() with the type of dtype's elements.
template <class F>
void by_dtype(DType dtype, F f) {
  if (dtype == DType::fp32) return f.template operator()<float>();
  if (dtype == DType::fp16) return f.template operator()<__half>();
  return f.template operator()<__nv_bfloat16>();
}

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace bv::BAREVISION_GPU
