// Conversion of elements of any dtype to and from float, and 16-byte memory accesses.
#pragma once
#include "kernels/cuda/round.cuh"
#include "kernels/types.h"

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

// n neighbouring elements, aligned to their size, at most 16 bytes: one memory access per 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Elements {
  static constexpr int size = n;
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

// The widest single access: 16 bytes.
template <class T>
using Pack = Elements<T, 16 / sizeof(T)>;

template <class T>
__device__ Pack<T> load_pack(const T* p) {
  return load<Pack<T>::size>(p);
}
template <class T>
__device__ void store_pack(T* p, const Pack<T>& pack) {
  store(p, pack);
}

template <class T>
__device__ void to_floats(float (&x)[Pack<T>::size], Pack<T> pack) {
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) x[i] = to_float(pack.at[i]);
}
template <class T>
__device__ Pack<T> pack_of(const float (&x)[Pack<T>::size]) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < Pack<T>::size; ++i) pack.at[i] = from_float<T>(x[i]);
  return pack;
}

// Whether dense rows of `elements` Ts can be read in packs.
template <class T>
constexpr bool in_packs(size_t elements) {
  return elements % Pack<T>::size == 0;
}

// Calls f.template operator()<T>() with the element type of dtype, which must be a 16-bit one.
template <class F>
void by_16_bits(DType dtype, F f) {
  if (dtype == DType::fp16) return f.template operator()<__half>();
  f.template operator()<__nv_bfloat16>();
}
// The same with any dtype.
template <class F>
void by_dtype(DType dtype, F f) {
  if (dtype == DType::fp32) return f.template operator()<float>();
  by_16_bits(dtype, f);
}

// Calls f.template operator()<T, width>() with the element type and the number of elements of the
// widest access to rows of C: a pack, or one element if C is not a multiple of a pack.
template <class F>
void by_width(DType dtype, int C, F f) {
  by_dtype(dtype, [&]<class T>() {
    if (in_packs<T>(C))
      f.template operator()<T, Pack<T>::size>();
    else
      f.template operator()<T, 1>();
  });
}

}  // namespace bv::BAREVISION_GPU
