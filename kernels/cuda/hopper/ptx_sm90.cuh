// Hopper's instructions for asynchronous copies and warp specialisation, wrapped like those in
// ptx.cuh: each named after its instruction, with its twin for g++ in simt/hopper. For sm_90a;
// elsewhere they trap, since the host never launches such a kernel there. Clusters and multicast
// are not supported: each shared address is in the block's own memory.
//
// An mbarrier is 8 bytes of shared memory, initialised by mbarrier_init and fence_mbarrier_init.
// Its phases are numbered from 0; a phase completes when all arrivals have been made and all
// expected bytes have arrived. A wait for parity p returns once the latest phase with that parity
// has completed; on a new mbarrier a wait for parity 1 returns at once.
#pragma once
#include <cuda.h>

#include "kernels/cuda/endless_wait.h"
#include "kernels/cuda/ptx.cuh"
#ifndef __CUDACC__
#include "simt/hopper/instructions.h"
#endif

namespace bv::BAREVISION_GPU {

#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
inline constexpr bool has_sm90a = true;
#else
inline constexpr bool has_sm90a = false;  // in device code of another GPU
#endif
#endif

// ---- mbarrier ---------------------------------------------------------------------------------
#ifdef __CUDACC__
__device__ inline void mbarrier_init(uint64_t* mbarrier, unsigned arrivals) {
  if constexpr (has_sm90a)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)),
                 "r"(arrivals)
                 : "memory");
  else
    __trap();
}
__device__ inline void mbarrier_inval(uint64_t* mbarrier) {
  if constexpr (has_sm90a)
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(mbarrier)) : "memory");
  else
    __trap();
}
__device__ inline void mbarrier_arrive(uint64_t* mbarrier) {
  if constexpr (has_sm90a)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(mbarrier))
                 : "memory");
  else
    __trap();
}
// The phase also waits for `bytes` bytes, out of bounds or not, of loads that complete on it.
__device__ inline void mbarrier_expect_tx(uint64_t* mbarrier, unsigned bytes) {
  if constexpr (has_sm90a)
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)),
        "r"(bytes)
        : "memory");
  else
    __trap();
}
__device__ inline void mbarrier_arrive_expect_tx(uint64_t* mbarrier, unsigned bytes) {
  if constexpr (has_sm90a)
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(mbarrier)),
        "r"(bytes)
        : "memory");
  else
    __trap();
}
// Waits for a limited time: may return false before the phase has completed.
__device__ inline bool mbarrier_try_wait_parity(uint64_t* mbarrier, unsigned parity) {
  unsigned ended = 0;
  if constexpr (has_sm90a)
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p;}"
        : "=r"(ended)
        : "r"(shared_address(mbarrier)), "r"(parity)
        : "memory");
  else
    __trap();
  return ended;
}
// Without a limit, which takes a register: for warps that have none left, if their partners' waits
// have a limit.
__device__ inline void mbarrier_wait_parity_untimed(uint64_t* mbarrier, unsigned parity) {
  while (!mbarrier_try_wait_parity(mbarrier, parity)) {
  }
}
// Gives up after 4 to 9 s: it tells the host which mbarrier (endless_wait.h), and traps.
__device__ inline unsigned seconds_by_4() {
  unsigned high;  // of nanoseconds
  asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(high));
  return high;
}
__device__ inline void mbarrier_wait_parity(uint64_t* mbarrier, unsigned parity,
                                            const char* file = __builtin_FILE(),
                                            unsigned line = __builtin_LINE()) {
  if (mbarrier_try_wait_parity(mbarrier, parity)) return;
  const unsigned begin = seconds_by_4();
  while (!mbarrier_try_wait_parity(mbarrier, parity))
    if (seconds_by_4() - begin > 1) tell_endless_wait(shared_address(mbarrier), parity, file, line);
}
#else
inline void mbarrier_init(uint64_t* mbarrier, unsigned arrivals,
                          ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_init(mbarrier, arrivals, site);
}
inline void mbarrier_inval(uint64_t* mbarrier, ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_inval(mbarrier, site);
}
inline void mbarrier_arrive(uint64_t* mbarrier, ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_arrive(mbarrier, site);
}
inline void mbarrier_expect_tx(uint64_t* mbarrier, unsigned bytes,
                               ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_expect_tx(mbarrier, bytes, site);
}
inline void mbarrier_arrive_expect_tx(uint64_t* mbarrier, unsigned bytes,
                                      ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_arrive_expect_tx(mbarrier, bytes, site);
}
inline bool mbarrier_try_wait_parity(uint64_t* mbarrier, unsigned parity,
                                     ::simt::Site site = ::simt::Site::current()) {
  return ::simt::mbarrier_try_wait_parity(mbarrier, parity, site);
}
inline void mbarrier_wait_parity(uint64_t* mbarrier, unsigned parity,
                                 ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_wait_parity(mbarrier, parity, site);
}
inline void mbarrier_wait_parity_untimed(uint64_t* mbarrier, unsigned parity,
                                         ::simt::Site site = ::simt::Site::current()) {
  ::simt::mbarrier_wait_parity(mbarrier, parity, site);
}
#endif

// ---- Fences -----------------------------------------------------------------------------------
// fence_mbarrier_init makes the mbarriers that this thread has initialised usable by TMA.
// fence_proxy_async makes this thread's stores to shared memory visible to TMA and wgmma. After
// either fence, a barrier must follow before another thread relies on its effect.
__device__ inline void fence_mbarrier_init() {
#ifdef __CUDACC__
  if constexpr (has_sm90a)
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  else
    __trap();
#else
  ::simt::fence_mbarrier_init();
#endif
}
__device__ inline void fence_proxy_async() {
#ifdef __CUDACC__
  if constexpr (has_sm90a)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  else
    __trap();
#else
  ::simt::fence_proxy_async();
#endif
}

// ---- Threads ----------------------------------------------------------------------------------

// True for one of the warp's lanes in `mask`, always the same. All lanes in `mask` must call it.
#ifdef __CUDACC__
__device__ inline bool elect_sync(unsigned mask = ~0u) {
  unsigned elected = 0;
  if constexpr (has_sm90a)
    asm volatile("{.reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p;}"
                 : "=r"(elected)
                 : "r"(mask));
  else
    __trap();
  return elected;
}
// Waits until `threads` threads of the block, a multiple of 32, have reached barrier `id`, 1 to 15.
__device__ inline void bar_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Sets the number of registers per thread of the warpgroup, a multiple of 8 from 24 to 256. All
// warps of the warpgroup must call it; _inc waits until others have released enough registers.
template <unsigned registers>
__device__ void setmaxnreg_inc() {
  if constexpr (has_sm90a)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
  else
    __trap();
}
template <unsigned registers>
__device__ void setmaxnreg_dec() {
  if constexpr (has_sm90a)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
  else
    __trap();
}
#else
inline bool elect_sync(unsigned mask = ~0u, ::simt::Site site = ::simt::Site::current()) {
  return ::simt::elect(mask, site);
}
inline void bar_sync(unsigned id, unsigned threads, ::simt::Site site = ::simt::Site::current()) {
  ::simt::wait_at_barrier(id, threads, site);
}
template <unsigned registers>
void setmaxnreg_inc(::simt::Site site = ::simt::Site::current()) {
  ::simt::set_max_registers(true, registers, site);
}
template <unsigned registers>
void setmaxnreg_dec(::simt::Site site = ::simt::Site::current()) {
  ::simt::set_max_registers(false, registers, site);
}
#endif

// ---- stmatrix: 8x8 matrices of 16-bit elements to shared memory --------------------------------
// The reverse of ldmatrix (ptx.cuh): lane i passes the address of row i%8 of matrix i/8, and in
// r[m] the pair (row i/4, columns i%4*2 and the next) of matrix m; with _trans the pair (rows
// i%4*2 and the next, column i/4). _x1 and _x2 use the addresses of the first 8 and 16 lanes.
#ifdef __CUDACC__
__device__ inline void stmatrix_x1(void* row, const uint32_t (&r)[1]) {
  if constexpr (has_sm90a)
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(shared_address(row)),
                 "r"(r[0])
                 : "memory");
  else
    __trap();
}
__device__ inline void stmatrix_x2(void* row, const uint32_t (&r)[2]) {
  if constexpr (has_sm90a)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1])
        : "memory");
  else
    __trap();
}
__device__ inline void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  if constexpr (has_sm90a)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
  else
    __trap();
}
__device__ inline void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) {
  if constexpr (has_sm90a)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                     shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
  else
    __trap();
}
#else
namespace twin {

template <int matrices, bool transposed>
void stmatrix(void* row, const uint32_t* r, ::simt::Site site) {
  const unsigned thread = ::simt::thread_in_block();
  if (thread % 32 < 8 * matrices) ::simt::check_stmatrix(row, site);
  struct Hand {
    void* row;
    const uint32_t* r;
    unsigned thread;
  } mine{row, r, thread};
  ::simt::collective(mine, site, [site](auto lanes) {
    ::simt::note_writes();
    for (int m = 0; m < matrices; ++m) {
      uint16_t matrix[8][8];
      for (int i = 0; i < 32; ++i) {
        const int g = i / 4, p = i % 4 * 2;
        const uint32_t pair = lanes(i).r[m];
        (transposed ? matrix[p][g] : matrix[g][p]) = uint16_t(pair);
        (transposed ? matrix[p + 1][g] : matrix[g][p + 1]) = uint16_t(pair >> 16);
      }
      for (int i = 0; i < 8; ++i) {
        const Hand& lane = lanes(8 * m + i);
        std::memcpy(lane.row, matrix[i], 16);
        ::simt::ordinary_write({lane.row, 16}, lane.thread, "stmatrix", site);
      }
    }
  });
}

}  // namespace twin

inline void stmatrix_x1(void* row, const uint32_t (&r)[1],
                        ::simt::Site site = ::simt::Site::current()) {
  twin::stmatrix<1, false>(row, r, site);
}
inline void stmatrix_x2(void* row, const uint32_t (&r)[2],
                        ::simt::Site site = ::simt::Site::current()) {
  twin::stmatrix<2, false>(row, r, site);
}
inline void stmatrix_x4(void* row, const uint32_t (&r)[4],
                        ::simt::Site site = ::simt::Site::current()) {
  twin::stmatrix<4, false>(row, r, site);
}
inline void stmatrix_x4_trans(void* row, const uint32_t (&r)[4],
                              ::simt::Site site = ::simt::Site::current()) {
  twin::stmatrix<4, true>(row, r, site);
}
#endif

}  // namespace bv::BAREVISION_GPU
