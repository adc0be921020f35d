// Hopper's matrix instructions of a warpgroup (4 aligned warps, 128 threads), wrapped like those in
// ptx.cuh, with twins in simt/hopper. For sm_90a; elsewhere they trap.
//
// D (64xN, fp32) += A (64x16 Ts) * B (16xN Ts), asynchronously:
//   wgmma_fence(d);                               // orders earlier writes of registers
//   for (...) wgmma_mma_async<T>(d, a, b, adds);  // adds = false: D = A * B
//   wgmma_commit_group();
//   wgmma_wait_group<0>(d);                       // d may be used from here on
// Registers are passed so that the compiler doesn't move their uses across the fence or the wait:
// each wait_group takes exactly the registers that are used after it, each fence those written
// since the last fence, A's included. While wgmmas are in flight, A's registers must not change.
// ptxas serialises wgmmas (warning C7510) whose accumulators are accessed between fence and wait.
//
// With g = thread/4 % 8, p = thread%4*2, warp w of the warpgroup and r = 16 w + g, a thread holds
// D: (r, 8j+p) (r, 8j+p+1) (r+8, 8j+p) (r+8, 8j+p+1)    in d[4j] ... d[4j+3], j = 0 ... N/8 - 1
// A: (r, p) (r+8, p) (r, p+8) (r+8, p+8)                pairs along the row, in a[0] ... a[3]
#pragma once
#include "kernels/cuda/hopper/ptx_sm90.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#ifdef __CUDACC__
#include "kernels/cuda/hopper/ptx_wgmma_shapes.cuh"
#else
#include "simt/hopper/wgmma.h"
#endif

namespace bv::BAREVISION_GPU {

// ---- Descriptors ------------------------------------------------------------------------------
// The layout of an operand in shared memory, A [M, 16] or B [N, 16]; MN is M or N. `Major` is
// the dimension along which elements are contiguous. With rows of W = 128, 64 or 32 bytes as TMA
// stores them with that swizzle, or W = 16 without a swizzle, offset_of(mn, k) in bytes is, before
// bits 4 ... 6 are exclusive-ored with bits 7 ... 9 of the address (64: 4, 5 with 7, 8; 32: 4 with
// 7),
//   K-major    mn % 8 * W + mn / 8 * stride + k * 2                         with a swizzle
//              mn % 8 * W + mn / 8 * stride + k % 8 * 2 + k / 8 * leading   without
//   MN-major   k % 8 * W + k / 8 * stride + mn % (W/2) * 2 + mn / (W/2) * leading
//              k % 8 * W + k / 8 * leading + mn % 8 * 2 + mn / 8 * stride   without a swizzle
// For a tile of contiguous rows of W bytes, stride = 8 W, and leading is the distance in bytes
// between tiles of W bytes of MN. A K-major operand with a swizzle ignores `leading`.
//
// The pattern of a swizzle of 128, 64 or 32 bytes repeats every 1024, 512 or 256 bytes, and a tile
// must begin at a multiple of that. Source: PTX ISA, "Matrix Descriptor"; compared with CuTe by
// tests/hopper.
enum class Major { k, mn };

__host__ __device__ constexpr uint64_t wgmma_descriptor(uint32_t shared_address, Swizzle swizzle,
                                                        uint32_t stride, uint32_t leading) {
  const auto field = [](uint32_t bytes) { return uint64_t{bytes / 16 & 0x3FFF}; };
  const uint64_t kind = (4 - uint64_t(swizzle)) % 4;  // none 0, 128 bytes 1, 64 2, 32 3
  return field(shared_address) | field(leading) << 16 | field(stride) << 32 | kind << 62;
}
// The descriptor moved forward by `bytes`: the next 16 of K are 32 bytes further in a K-major
// tile's rows, 2 * stride further in an MN-major tile with a swizzle.
__host__ __device__ constexpr uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + bytes / 16;
}

#ifdef __CUDACC__
__device__ inline uint64_t wgmma_descriptor(const void* tile, Swizzle swizzle, uint32_t stride,
                                            uint32_t leading = 16) {
  return wgmma_descriptor(shared_address(tile), swizzle, stride, leading);
}
#else
inline uint64_t wgmma_descriptor(const void* tile, Swizzle swizzle, uint32_t stride,
                                 uint32_t leading = 16,
                                 ::simt::Site site = ::simt::Site::current()) {
  ::simt::check_aligned(tile, 16, "wgmma_descriptor", site);
  return wgmma_descriptor(::simt::shared_address(tile, site), swizzle, stride, leading);
}
#endif

// ---- The instructions -------------------------------------------------------------------------
#ifdef __CUDACC__
namespace wgmma_asm {

// Keeps the compiler from moving uses of these registers across it.
__device__ inline void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ inline void pin(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
template <class T, size_t n>
__device__ void pin(T (&registers)[n]) {
#pragma unroll
  for (size_t i = 0; i < n; ++i) pin(registers[i]);
}

}  // namespace wgmma_asm

template <class... Arrays>
__device__ void wgmma_fence(Arrays&... registers) {
  (wgmma_asm::pin(registers), ...);
  if constexpr (has_sm90a)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  else
    __trap();
}
// A and B in shared memory.
template <class T, Major a_major = Major::k, Major b_major = Major::k, size_t n>
__device__ void wgmma_mma_async(float (&d)[n], uint64_t a, uint64_t b, bool adds) {
  if constexpr (has_sm90a)
    wgmma_asm::mma_async<T, a_major == Major::mn, b_major == Major::mn>(d, a, b, adds);
  else
    __trap();
}
// A in registers.
template <class T, Major b_major = Major::k, size_t n>
__device__ void wgmma_mma_async(float (&d)[n], const uint32_t (&a)[4], uint64_t b, bool adds) {
  if constexpr (has_sm90a)
    wgmma_asm::mma_async<T, b_major == Major::mn>(d, a, b, adds);
  else
    __trap();
}
__device__ inline void wgmma_commit_group() {
  if constexpr (has_sm90a) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `pending` committed groups are in flight.
template <int pending, class... Arrays>
__device__ void wgmma_wait_group(Arrays&... accumulators) {
  static_assert(pending >= 0 && pending <= 7);
  if constexpr (has_sm90a)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (wgmma_asm::pin(accumulators), ...);
}
#else
namespace twin {

template <class T>
inline constexpr unsigned rows_of = 1;  // arrays of registers in an array
template <class T, size_t n, size_t m>
inline constexpr unsigned rows_of<T[n][m]> = n* rows_of<T[m]>;

template <class T, size_t n>
::simt::Registers* list(::simt::Registers* to, T (&registers)[n]) {
  if constexpr (std::is_array_v<T>) {
    for (T& row : registers) to = list(to, row);
    return to;
  } else {
    static_assert(sizeof(T) == 4);
    *to = {registers, n};
    return to + 1;
  }
}

template <class... Arrays>
struct Lists {
  static constexpr unsigned count = (0 + ... + rows_of<Arrays>);
  ::simt::Registers all[1 + count];
  explicit Lists(Arrays&... registers) {
    [[maybe_unused]] ::simt::Registers* to = all;
    ((to = list(to, registers)), ...);
  }
};
template <class... Arrays>
void fence(::simt::Site site, Arrays&... registers) {
  ::simt::wgmma_fence(Lists(registers...).all, Lists<Arrays...>::count, site);
}
template <class... Arrays>
void wait_group(unsigned pending, ::simt::Site site, Arrays&... accumulators) {
  ::simt::wgmma_wait_group(pending, Lists(accumulators...).all, Lists<Arrays...>::count, site);
}

}  // namespace twin

// Overloads for zero to four arrays: a default argument can't follow a pack.
inline void wgmma_fence(::simt::Site site = ::simt::Site::current()) { twin::fence(site); }
template <class A>
void wgmma_fence(A& a, ::simt::Site site = ::simt::Site::current()) {
  twin::fence(site, a);
}
template <class A, class B>
void wgmma_fence(A& a, B& b, ::simt::Site site = ::simt::Site::current()) {
  twin::fence(site, a, b);
}
template <class A, class B, class C>
void wgmma_fence(A& a, B& b, C& c, ::simt::Site site = ::simt::Site::current()) {
  twin::fence(site, a, b, c);
}
template <class A, class B, class C, class D>
void wgmma_fence(A& a, B& b, C& c, D& d, ::simt::Site site = ::simt::Site::current()) {
  twin::fence(site, a, b, c, d);
}
template <int pending>
void wgmma_wait_group(::simt::Site site = ::simt::Site::current()) {
  twin::wait_group(pending, site);
}
template <int pending, class A>
void wgmma_wait_group(A& a, ::simt::Site site = ::simt::Site::current()) {
  twin::wait_group(pending, site, a);
}
template <int pending, class A, class B>
void wgmma_wait_group(A& a, B& b, ::simt::Site site = ::simt::Site::current()) {
  twin::wait_group(pending, site, a, b);
}
template <int pending, class A, class B, class C>
void wgmma_wait_group(A& a, B& b, C& c, ::simt::Site site = ::simt::Site::current()) {
  twin::wait_group(pending, site, a, b, c);
}
template <class T, Major a_major = Major::k, Major b_major = Major::k, size_t n>
void wgmma_mma_async(float (&d)[n], uint64_t a, uint64_t b, bool adds,
                     ::simt::Site site = ::simt::Site::current()) {
  static_assert(n % 4 == 0 && n >= 4 && n <= 128);
  ::simt::wgmma_mma_async(
      {.shape = {2 * n, std::is_same_v<T, __half>, a_major == Major::mn, b_major == Major::mn},
       .a_descriptor = a,
       .b_descriptor = b,
       .a = nullptr,
       .d = d,
       .adds = adds},
      site);
}
template <class T, Major b_major = Major::k, size_t n>
void wgmma_mma_async(float (&d)[n], const uint32_t (&a)[4], uint64_t b, bool adds,
                     ::simt::Site site = ::simt::Site::current()) {
  static_assert(n % 4 == 0 && n >= 4 && n <= 128);
  ::simt::wgmma_mma_async({.shape = {2 * n, std::is_same_v<T, __half>, false, b_major == Major::mn},
                           .a_descriptor = 0,
                           .b_descriptor = b,
                           .a = a,
                           .d = d,
                           .adds = adds},
                          site);
}
inline void wgmma_commit_group(::simt::Site site = ::simt::Site::current()) {
  ::simt::wgmma_commit_group(site);
}
#endif

}  // namespace bv::BAREVISION_GPU
