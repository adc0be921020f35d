// The base of device code: thread index, barriers, shared memory. intrinsics.h gives these CUDA's
// names; the stand-ins for PTX instructions call them directly.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>

#include "simt/counters/counting.h"
#include "simt/device/types.h"

inline namespace simt_cuda {

constinit inline thread_local uint3 threadIdx{}, blockIdx{};
constinit inline thread_local dim3 blockDim{}, gridDim{};

}  // namespace simt_cuda
// For gdb, which doesn't look into inline namespaces: print threadIdx.
using simt_cuda::blockDim, simt_cuda::blockIdx, simt_cuda::gridDim, simt_cuda::threadIdx;

namespace simt {

using Site = std::source_location;  // a place in a kernel, for messages
inline constexpr uint32_t all_lanes = ~0u;

// ---- Waiting -----------------------------------------------------------------------------------
// All threads must wait at the same line, except in wait_at_barrier. A mask names lanes of the
// caller's warp; lanes beyond the end of the block are ignored.

void wait_for_block(Site);
unsigned count_in_block(bool yes, Site);  // waits; returns the number of threads with `yes`

// Waits at one of 16 barriers until `threads` threads of the block have arrived; 0: all.
void wait_at_barrier(unsigned id, unsigned threads, Site);

void wait_for_lanes(uint32_t mask, Site);
uint32_t ballot(uint32_t mask, bool yes, Site);  // waits; returns the lanes with `yes`

// Waits; returns the value of another lane. `argument` is that lane's index in the group of `width`
// lanes, or its offset up, down or by xor from the calling lane.
enum class From { index, below, above, exclusive_or };
uint64_t shuffle(uint32_t mask, uint64_t bits, From, unsigned argument, unsigned width, Site);

// Every lane of a full warp passes its data in a Hand. The last lane to arrive calls work(lanes)
// for the whole warp, and work reads and writes lanes(0) ... lanes(31).
using WarpWork = void (*)(const void* work, void* const* hands);
void wait_with_hand(void* hand, const void* work, WarpWork, Site);

template <class Hand, class Work>
void collective(Hand& mine, Site site, const Work& work) {
  wait_with_hand(
      &mine, &work,
      [](const void* w, void* const* hands) {
        (*static_cast<const Work*>(w))(
            [hands](int lane) -> Hand& { return *static_cast<Hand*>(hands[lane]); });
      },
      site);
}

// Notes that threads meet (control.h). Waits and shared memory do it by themselves.
void meet() noexcept;

// ---- Memory ------------------------------------------------------------------------------------

// The shape of an array, for messages that name an element.
struct Extents {
  size_t element_bytes = 1;
  unsigned rank = 0;
  size_t of[4] = {};

  template <class T>
  static constexpr Extents type() {
    static_assert(std::rank_v<T> <= 4);
    return {sizeof(std::remove_all_extents_t<T>),
            std::rank_v<T>,
            {std::extent_v<T, 0>, std::extent_v<T, 1>, std::extent_v<T, 2>, std::extent_v<T, 3>}};
  }
  std::string index(size_t element) const;
};
// The launch's shared memory; fails if it has fewer bytes. `name`: the kernel's name for it.
void* shared_memory(size_t bytes, const char* name = nullptr, Extents = {});
// A __shared__ variable, identified by the place of its declaration.
void* shared_variable(const char* name, size_t bytes, Site, Extents = {});

// Fail if the pointer is not aligned to `bytes` or (check_shared) is outside shared memory. `what`
// names the access.
void check_aligned(const void* p, size_t bytes, const char* what, Site);
void check_shared(const void* p, size_t bytes, const char* what, Site);

// Each lane calls this before an ldmatrix of its row of 16 bytes.
void check_ldmatrix(const void* row, Site);
// Counts one mma of a warp.
void count_mma();

// An asynchronous copy to shared memory, padded with zeros to `bytes`. It lands at some point
// between its issue and its wait (Order). Each thread commits its own copies in groups.
void copy_async(void* to, const void* from, size_t bytes, size_t from_bytes, Site);
void copy_commit();
void copy_wait(unsigned pending);  // until at most `pending` committed groups are in flight

// ---- Errors ------------------------------------------------------------------------------------

// Ends the launch: "KERNEL: block (0,0,0): thread (3,0,0) WHAT at FILE:LINE:COLUMN".
[[noreturn]] void fail(const char* what, Site);
// Fails if a kernel runs on this host thread.
void refuse_in_kernel(const char* what, Site);

}  // namespace simt

inline namespace simt_cuda {

// The block's shared memory, as one struct that holds everything a kernel keeps in it.
template <class T>
T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>, "shared memory runs no constructors");
  return *static_cast<T*>(simt::shared_memory(sizeof(T)));
}

}  // namespace simt_cuda
