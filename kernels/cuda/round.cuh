// Integer division and multiples, rounded up.
#pragma once
#include <type_traits>

#include "kernels/cuda/launch.cuh"

namespace bv::BAREVISION_GPU {

template <class T>
__host__ __device__ constexpr T ceil_div(T a, std::type_identity_t<T> b) {
  return (a + b - 1) / b;
}
template <class T>
__host__ __device__ constexpr T round_up(T a, std::type_identity_t<T> multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace bv::BAREVISION_GPU
