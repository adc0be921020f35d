// What device code stands on: where a thread is, how it waits for others, its block's memory.
// intrinsics.h has CUDA's names for these; twins of PTX instructions use them as they are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "kernels/simt/include/types.h"

inline namespace simt_cuda {

constinit inline thread_local uint3 threadIdx{}, blockIdx{};
constinit inline thread_local dim3 blockDim{}, gridDim{};

}  // namespace simt_cuda

namespace simt {

using Site = std::source_location;  // a place in a kernel, for messages
inline constexpr uint32_t all_lanes = ~0u;

// ---- Waiting. All threads must come to the same place. A mask names lanes of the caller's warp;
// those that the block doesn't have are not waited for. ------------------------------------------

void wait_for_block(Site);
unsigned count_in_block(bool yes, Site);  // waits; how many threads said yes

void wait_for_lanes(uint32_t mask, Site);
uint32_t ballot(uint32_t mask, bool yes, Site);  // waits; the lanes that said yes

// Waits; what the lane at `argument` (of the group of `width` lanes, above, below, or at own lane ^
// argument) has brought.
enum class From { index, below, above, exclusive_or };
uint64_t shuffle(uint32_t mask, uint64_t bits, From, unsigned argument, unsigned width, Site);

// Every lane of a whole warp brings a Hand; the last to come calls work(lanes) for all, which reads
// and writes them: lanes(0) ... lanes(31).
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

// ---- Memory ------------------------------------------------------------------------------------

void* shared_memory(size_t bytes);  // refuses more than the launch asked for

// Refuses what is not at a multiple of `bytes`, or (check_shared) not in shared memory. `what` names
// the access.
void check_aligned(const void* p, size_t bytes, const char* what, Site);
void check_shared(const void* p, size_t bytes, const char* what, Site);

// An asynchronous copy to shared memory, the rest up to `bytes` filled with zeros, lands somewhen
// between its issue and its wait (Order). Each thread has its own, committed in groups.
void copy_async(void* to, const void* from, size_t bytes, size_t from_bytes, Site);
void copy_commit();
void copy_wait(unsigned pending);  // until at most so many committed groups are under way

// ---- Errors ------------------------------------------------------------------------------------

// Ends the launch: "KERNEL: block (0,0,0): thread (3,0,0) WHAT at FILE:LINE:COLUMN".
[[noreturn]] void fail(const char* what, Site);

}  // namespace simt

inline namespace simt_cuda {

// The block's shared memory: one struct for all that a kernel keeps there.
template <class T>
T& shared() {
  static_assert(std::is_trivially_default_constructible_v<T>, "nobody constructs shared memory");
  return *static_cast<T*>(simt::shared_memory(sizeof(T)));
}

}  // namespace simt_cuda
