// CUDA's device functions for g++: those that this project's kernels call. Arithmetic is in
// simt/include/math_functions.h.
#pragma once
#include <atomic>
#include <bit>
#include <concepts>
#include <utility>

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

// ---- Shuffles: of numbers of 4 and 8 bytes, and of halves --------------------------------------

struct __half;  // cuda_fp16.h
struct __half2;
struct __nv_bfloat16;  // cuda_bf16.h
struct __nv_bfloat162;

}  // namespace simt_cuda

namespace simt {

// One of the types for which CUDA has an overload of a function. Templates with this constraint
// refuse what nvcc refuses.
template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);

// A narrow integer is passed as an int, as to any function with an overload for int.
template <class T>
struct Promotion {
  using Type = T;
};
template <class T>
requires requires(T value) { +value; }
struct Promotion<T> {
  using Type = decltype(+std::declval<T>());
};
template <class T>
using Promoted = typename Promotion<T>::Type;
template <class T>
concept Shuffled = OneOf < Promoted<T>,
int, unsigned, long, unsigned long, long long, unsigned long long, float, double, __half, __half2,
    __nv_bfloat16, __nv_bfloat162 > ;

template <Shuffled T>
Promoted<T> shuffle_value(unsigned mask, T narrow, From from, int argument, int width, Site site) {
  Promoted<T> value = narrow;
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = shuffle(mask, bits, from, static_cast<unsigned>(argument), static_cast<unsigned>(width),
                 site);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace simt

inline namespace simt_cuda {

template <simt::Shuffled T>
simt::Promoted<T> __shfl_sync(unsigned mask, T value, int lane, int width = warpSize,
                              simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::index, lane, width, site);
}
template <simt::Shuffled T>
simt::Promoted<T> __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                                 simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::below, static_cast<int>(delta), width, site);
}
template <simt::Shuffled T>
simt::Promoted<T> __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                                   simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::above, static_cast<int>(delta), width, site);
}
template <simt::Shuffled T>
simt::Promoted<T> __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize,
                                  simt::Site site = simt::Site::current()) {
  return simt::shuffle_value(mask, value, simt::From::exclusive_or, bits, width, site);
}

// ---- Atomics: integers only. Sums of floats would depend on the order of threads. --------------

// CUDA adds to int, unsigned and unsigned long long, and compares long long, too: not long, nor
// uint64_t, which is another type of eight bytes.
template <class T>
concept AtomicNumber = simt::OneOf<T, int, unsigned, unsigned long long>;
template <class T>
concept AtomicOrdered = AtomicNumber<T> || simt::OneOf<T, long long>;

// Inlined, like the loads and stores below, so that messages name the caller's line.
template <AtomicNumber T>
[[gnu::always_inline]] inline T atomicAdd(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);
}
template <simt::OneOf<int, unsigned> T>
[[gnu::always_inline]] inline T atomicSub(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicOrdered T>
[[gnu::always_inline]] inline T atomicAnd(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_fetch_and(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicOrdered T>
[[gnu::always_inline]] inline T atomicOr(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_fetch_or(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicOrdered T>
[[gnu::always_inline]] inline T atomicXor(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_fetch_xor(p, x, __ATOMIC_SEQ_CST);
}
template <AtomicNumber T>
[[gnu::always_inline]] inline T atomicExch(T* p, std::type_identity_t<T> x) {
  simt::meet();
  return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);
}
template <class T>
requires AtomicNumber<T> || simt::OneOf<T, unsigned short>
[[gnu::always_inline]] inline T atomicCAS(T* p, std::type_identity_t<T> expected,
                                          std::type_identity_t<T> x) {
  simt::meet();
  __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <AtomicOrdered T>
[[gnu::always_inline]] inline T atomicMax(T* p, std::type_identity_t<T> x) {
  simt::meet();
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (old < x &&
         !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
template <AtomicOrdered T>
[[gnu::always_inline]] inline T atomicMin(T* p, std::type_identity_t<T> x) {
  simt::meet();
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (x < old &&
         !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
// Increments, and wraps to 0 after `last`.
[[gnu::always_inline]] inline unsigned atomicInc(unsigned* p, unsigned last) {
  simt::meet();
  unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(p, &old, old >= last ? 0 : old + 1, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST)) {
  }
  return old;
}
// simt/races/hooks.cpp distinguishes these fences by their memory order.
inline void __threadfence() {
  simt::meet();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void __threadfence_system() { __threadfence(); }
inline void __threadfence_block() {
  simt::meet();
  std::atomic_thread_fence(std::memory_order_acq_rel);
}

// ---- Memory: cache hints, which have no effect -------------------------------------------------

template <class T>
concept Hinted =
    simt::OneOf<T, char, signed char, unsigned char, short, unsigned short, int, unsigned, long,
                unsigned long, long long, unsigned long long, float, double, float2, float4, uint2,
                uint4, int4, __half, __half2, __nv_bfloat16, __nv_bfloat162>;
template <Hinted T>
[[gnu::always_inline]] inline T __ldg(const T* p) {
  return *p;
}
template <Hinted T>
[[gnu::always_inline]] inline T __ldcs(const T* p) {
  return *p;
}
template <Hinted T>
[[gnu::always_inline]] inline T __ldcg(const T* p) {
  return *p;
}
template <Hinted T>
[[gnu::always_inline]] inline void __stcs(T* p, const std::type_identity_t<T>& value) {
  *p = value;
}
template <Hinted T>
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

// ---- Errors ------------------------------------------------------------------------------------

[[noreturn]] inline void __trap(simt::Site site = simt::Site::current()) {
  simt::fail("meets __trap", site);
}

}  // namespace simt_cuda
