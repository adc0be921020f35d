// Wrappers of PTX instructions, each named after its instruction, next to its twin for g++, in
// which the last lane to arrive executes a warp's instruction for all lanes (::simt::collective).
// 16-bit elements are __half or __nv_bfloat16; a register's lower half holds the first of a pair.
// Older GPUs run older instructions instead; bf16 before sm_80 traps, since the host never launches
// it.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/pack.cuh"
#ifndef __CUDACC__
#include "simt/device/tensor_cores.h"
#endif

namespace bv::BAREVISION_GPU {

#ifndef __CUDACC__
namespace twin {

template <bool transposed>
void ldmatrix(uint32_t* r, const void* row, ::simt::Site site) {
  ::simt::check_ldmatrix(row, site);
  struct Hand {
    uint32_t* r;
    const void* row;
  } mine{r, row};
  ::simt::collective(mine, site, [](auto lanes) {
    for (int m = 0; m < 4; ++m) {
      uint16_t matrix[8][8];
      for (int i = 0; i < 8; ++i) std::memcpy(matrix[i], lanes(8 * m + i).row, 16);
      for (int i = 0; i < 32; ++i) {
        const int g = i / 4, p = i % 4 * 2;
        lanes(i).r[m] = transposed ? matrix[p][g] | uint32_t{matrix[p + 1][g]} << 16
                                   : matrix[g][p] | uint32_t{matrix[g][p + 1]} << 16;
      }
    }
  });
}

template <class T>
::simt::float8 to_float8(const uint16_t* elements) {
  if constexpr (std::is_same_v<T, __half>) return ::simt::half8_to_float8(elements);
  using uint16x8 = uint16_t __attribute__((vector_size(16)));
  using uint32x8 = uint32_t __attribute__((vector_size(32)));
  uint16x8 bits;
  std::memcpy(&bits, elements, 16);
  return ::simt::float8(__builtin_convertvector(bits, uint32x8) << 16);
}

// .ftz: a subnormal number becomes zero, with its sign.
inline float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

}  // namespace twin
#endif

// ---- ldmatrix: 8x8 matrices of 16-bit elements from shared memory ------------------------------
// Lane i passes the address of row i%8 of matrix i/8, and gets in r[m] the pair (row i/4, columns
// i%4*2 and the next) of matrix m; with _trans the pair (rows i%4*2 and the next, column i/4).
#ifdef __CUDACC__
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
#else
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row,
                        ::simt::Site site = ::simt::Site::current()) {
  twin::ldmatrix<false>(r, row, site);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row,
                              ::simt::Site site = ::simt::Site::current()) {
  twin::ldmatrix<true>(r, row, site);
}
#endif

// ---- mma ----------------------------------------------------------------------------------------
// D (16x8, fp32) += A (16x16 Ts) * B (16x8 Ts). With g = lane/4 and p = lane%4*2, a lane holds
// D: (g, p) (g, p+1) (g+8, p) (g+8, p+1)            one element each
// A: (g, p) (g+8, p) (g, p+8) (g+8, p+8)            pairs along the row
// B: (p, g) (p+8, g)                                pairs along the column
#ifdef __CUDACC__
template <class T>
__device__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  if constexpr (std::is_same_v<T, __half>) {  // Turing multiplies 8 columns of A at a time
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  } else {
    __trap();
  }
#endif
}
#else
template <class T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  ::simt::Site site = ::simt::Site::current()) {
  struct Hand {
    float* d;
    const uint32_t* a;
    uint32_t b[2];
  } mine{d, a, {b0, b1}};
  ::simt::collective(mine, site, [](auto lanes) {
    if constexpr (::simt::counting) ::simt::count_mma();
    alignas(16) uint16_t A[16][16], B[16][8];
    alignas(32) float D[16][8];
    for (int i = 0; i < 32; ++i) {
      const auto& [ld, la, lb] = lanes(i);
      const int g = i / 4, p = i % 4 * 2;
      std::memcpy(&D[g][p], ld, 8);
      std::memcpy(&D[g + 8][p], ld + 2, 8);
      for (int j = 0; j < 4; ++j) std::memcpy(&A[g + j % 2 * 8][p + j / 2 * 8], &la[j], 4);
      for (int j = 0; j < 2; ++j)
        B[p + j * 8][g] = uint16_t(lb[j]), B[p + j * 8 + 1][g] = uint16_t(lb[j] >> 16);
    }
    ::simt::float8 b[16];
    for (int k = 0; k < 16; ++k) b[k] = twin::to_float8<T>(B[k]);
    for (int row = 0; row < 16; ++row) {
      ::simt::float8 sum;
      std::memcpy(&sum, D[row], 32);
      const ::simt::float8 low = twin::to_float8<T>(A[row]), high = twin::to_float8<T>(A[row] + 8);
      if (::simt::tensor_cores.block) {
        for (int n = 0; n < 8; ++n)
          sum[n] = ::simt::truncated_sum(
              sum[n], 16, [&](int k) { return double(k < 8 ? low[k] : high[k - 8]) * b[k][n]; });
      } else {
        for (int k = 0; k < 8; ++k) sum += low[k] * b[k];
        for (int k = 0; k < 8; ++k) sum += high[k] * b[k + 8];
      }
      std::memcpy(D[row], &sum, 32);
    }
    for (int i = 0; i < 32; ++i) {
      std::memcpy(lanes(i).d, &D[i / 4][i % 4 * 2], 8);
      std::memcpy(lanes(i).d + 2, &D[i / 4 + 8][i % 4 * 2], 8);
    }
  });
}
#endif

// ---- cp.async -----------------------------------------------------------------------------------
// Copies 16 bytes from global to shared memory, in flight until a cp_async_wait. If not in_bounds,
// writes zeros without reading global memory. Before sm_80 a plain, synchronous copy.
#ifdef __CUDACC__
__device__ inline void cp_async_16(void* shared, const void* global, bool in_bounds = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(in_bounds ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(shared) = in_bounds ? *static_cast<const uint4*>(global) : uint4{0, 0, 0, 0};
#endif
}
// The same through the L1 cache, for data that the block soon reads again.
__device__ inline void cp_async_ca_16(void* shared, const void* global, bool in_bounds = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(in_bounds ? 16 : 0)
               : "memory");
#else
  cp_async_16(shared, global, in_bounds);
#endif
}
// The same for 8 bytes.
__device__ inline void cp_async_ca_8(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global))
               : "memory");
#else
  *static_cast<uint2*>(shared) = *static_cast<const uint2*>(global);
#endif
}
__device__ inline void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int pending>  // waits until at most this many committed groups are in flight
__device__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}
#else
inline void cp_async_16(void* shared, const void* global, bool in_bounds = true,
                        ::simt::Site site = ::simt::Site::current()) {
  ::simt::copy_async(shared, global, 16, in_bounds ? 16 : 0, site);
}
inline void cp_async_ca_16(void* shared, const void* global, bool in_bounds = true,
                           ::simt::Site site = ::simt::Site::current()) {
  ::simt::copy_async(shared, global, 16, in_bounds ? 16 : 0, site);
}
inline void cp_async_ca_8(void* shared, const void* global,
                          ::simt::Site site = ::simt::Site::current()) {
  ::simt::copy_async(shared, global, 8, 8, site);
}
inline void cp_async_commit() { ::simt::copy_commit(); }
template <int pending>
void cp_async_wait() {
  ::simt::copy_wait(pending);
}
#endif

// ---- special registers --------------------------------------------------------------------------
// threadIdx.x, read at each call: values derived from it are recomputed where needed instead of
// occupying registers throughout a loop that needs all registers.
__device__ inline unsigned mov_tid_x() {
#ifdef __CUDACC__
  unsigned x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
#else
  return threadIdx.x;
#endif
}

// ---- arithmetic ---------------------------------------------------------------------------------
// 2^x, within 2 units in the last place; results below 2^-126 are 0. .ftz (PTX ISA): subnormal
// inputs and results become zeros with their sign; in other code nvcc keeps them (no -ftz=true).
__device__ inline float ex2_approx_ftz(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return twin::flush(exp2f(twin::flush(x)));
#endif
}

// log2 x, with a relative error of at most 2^-22, near x = 1 an absolute one. x below 2^-126 counts
// as 0.
__device__ inline float lg2_approx_ftz(float x) {
#ifdef __CUDACC__
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return log2f(twin::flush(x));
#endif
}

// 1 / x, within 1 unit in the last place. x below 2^-126 counts as 0, and results below 2^-126 (x
// above 2^126) become 0.
__device__ inline float rcp_approx_ftz(float x) {
#ifdef __CUDACC__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return twin::flush(1 / twin::flush(x));
#endif
}

// Two floats as a pair of Ts, rounded to nearest even.
template <class T>
__device__ uint32_t cvt_rn_x2(float first, float second) {
#ifdef __CUDACC__
  uint32_t pair = 0;
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  if constexpr (std::is_same_v<T, __half>)
    asm("{.reg .b16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b};}"
        : "=r"(pair)
        : "f"(first), "f"(second));
  else
    __trap();
#endif
  return pair;
#else
  uint16_t pair[2];
  const T a = from_float<T>(first), b = from_float<T>(second);
  std::memcpy(&pair[0], &a, 2), std::memcpy(&pair[1], &b, 2);
  return pair[0] | uint32_t{pair[1]} << 16;
#endif
}

// ---- st.global: 16 or 8 bytes at once, where nvcc would split the store ---------------------
__device__ inline void st_global(uint4* p, uint4 x) {
#ifdef __CUDACC__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)),
               "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
#else
  *p = x;
#endif
}
__device__ inline void st_global(uint2* p, uint2 x) {
#ifdef __CUDACC__
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(x.x),
               "r"(x.y)
               : "memory");
#else
  *p = x;
#endif
}

}  // namespace bv::BAREVISION_GPU
