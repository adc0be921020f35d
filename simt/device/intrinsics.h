// CUDA's device functions for g++: those that this project's kernels call.
#pragma once
#include <math.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "simt/device/device.h"

inline namespace simt_cuda {

inline constexpr int warpSize = 32;

// ---- Barriers and votes ------------------------------------------------------------------------

inline void __syncthreads(simt::Site site = simt::Site::current()) { simt::wait_for_block(site); }
inline int __syncthreads_count(int predicate, simt::Site site = simt::Site::current()) {
  return static_cast<int>(simt::count_in_block(predicate != 0, site));
}
inline int __syncthreads_or(int predicate, simt::Site site = simt::Site::current()) {
  return simt::count_in_block(predicate != 0, site) != 0;
}
inline int __syncthreads_and(int predicate, simt::Site site = simt::Site::current()) {
  return simt::count_in_block(predicate == 0, site) == 0;
}
// bar.sync: `threads` threads of the block, or all, wait for each other, possibly at other lines.
inline void __barrier_sync(unsigned id, simt::Site site = simt::Site::current()) {
  simt::wait_at_barrier(id, 0, site);
}
inline void __barrier_sync_count(unsigned id, unsigned threads,
                                 simt::Site site = simt::Site::current()) {
  simt::wait_at_barrier(id, threads, site);
}
inline void __syncwarp(unsigned mask = ~0u, simt::Site site = simt::Site::current()) {
  simt::wait_for_lanes(mask, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              simt::Site site = simt::Site::current()) {
  return simt::ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate, simt::Site site = simt::Site::current()) {
  return simt::ballot(mask, predicate != 0, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, simt::Site site = simt::Site::current()) {
  return simt::ballot(mask, predicate == 0, site) == 0;
}

// ---- Shuffles ----------------------------------------------------------------------------------

}  // namespace simt_cuda

namespace simt {

template <class T>
T shuffle_value(unsigned mask, T value, From from, int argument, int width, Site site) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = shuffle(mask, bits, from, static_cast<unsigned>(argument), static_cast<unsigned>(width),
                 site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace simt

inline namespace simt_cuda {

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
              simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::index, lane, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::below, static_cast<int>(delta), width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::above, static_cast<int>(delta), width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize,
                  simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::exclusive_or, bits, width, site);
}

// ---- Atomics: integers only. Sums of floats would depend on the order of threads. --------------

template <class T>
concept AtomicInteger = std::is_integral_v<T> && sizeof(T) >= 4;

// Inlined, like the loads and stores below, so that messages name the caller's line.
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicAdd(T* p, std::type_identity_t<T> x) {
  return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicSub(T* p, std::type_identity_t<T> x) {
  return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicAnd(T* p, std::type_identity_t<T> x) {
  return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicOr(T* p, std::type_identity_t<T> x) {
  return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicXor(T* p, std::type_identity_t<T> x) {
  return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicExch(T* p, std::type_identity_t<T> x) {
  return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicCAS(T* p, std::type_identity_t<T> expected,
                                          std::type_identity_t<T> x) {
  __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicMax(T* p, std::type_identity_t<T> x) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (old < x &&
         !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
template <AtomicInteger T>
[[gnu::always_inline]] inline T atomicMin(T* p, std::type_identity_t<T> x) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (x < old &&
         !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
// Increments, and wraps to 0 after `last`.
[[gnu::always_inline]] inline unsigned atomicInc(unsigned* p, unsigned last) {
  unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(p, &old, old >= last ? 0 : old + 1, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return old;
}
// simt/races/hooks.cpp distinguishes these fences by their memory order.
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { __threadfence(); }
inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_acq_rel); }

// ---- Memory: cache hints, which have no effect -------------------------------------------------

template <class T>
[[gnu::always_inline]] inline T __ldg(const T* p) {
  return *p;
}
template <class T>
[[gnu::always_inline]] inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
[[gnu::always_inline]] inline T __ldcg(const T* p) {
  return *p;
}
template <class T>
[[gnu::always_inline]] inline void __stcs(T* p, const std::type_identity_t<T>& value) {
  *p = value;
}
template <class T>
[[gnu::always_inline]] inline void __stcg(T* p, const std::type_identity_t<T>& value) {
  *p = value;
}

// ---- Bits and integers -------------------------------------------------------------------------

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;
template <Arithmetic T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <Arithmetic T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
inline float min(float a, float b) { return fminf(a, b); }  // ignores a NaN
inline float max(float a, float b) { return fmaxf(a, b); }

// ---- Floats. A GPU's fast versions are less exact than these: tests allow for it. --------------

inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp2f(float x) { return std::exp2(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }

// ---- Errors ------------------------------------------------------------------------------------

[[noreturn]] inline void __trap(simt::Site site = simt::Site::current()) {
  simt::fail("meets __trap", site);
}

}  // namespace simt_cuda
