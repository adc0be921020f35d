// TMA's copies between global and shared memory, each issued by one thread (ptx_sm90.cuh). A load
// completes on an mbarrier, which expects its bytes; a store belongs to a group that its thread
// commits, and its shared memory may be overwritten after wait_group_read.
//
// `at` are coordinates in elements, the innermost dimension first. Boxes in shared memory are
// aligned to 128 bytes, with a swizzle to 8 times its span. Elements outside the tensor are read as
// zeros, which count as bytes of the load, and are not stored.
#pragma once
#include "kernels/cuda/hopper/ptx_sm90.cuh"

namespace bv::BAREVISION_GPU {

#ifdef __CUDACC__
// A box of a tiled tensor.
template <int rank>
__device__ void cp_async_bulk_tensor(void* shared, const CUtensorMap& map, uint64_t* mbarrier,
                                     const int (&at)[rank]) {
  static_assert(rank >= 1 && rank <= 5);
  if constexpr (!has_sm90a) {
    __trap();
  } else if constexpr (rank == 1) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3}], [%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0])
        : "memory");
  } else if constexpr (rank == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1])
        : "memory");
  } else if constexpr (rank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2])
        : "memory");
  } else if constexpr (rank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
        : "memory");
  } else if constexpr (rank == 5) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
        "r"(at[4])
        : "memory");
  }
}
// Pixels of a convolution's input from `at` on, each shifted by the filter tap's `offset` (W
// first). Im2colTensor (tensor_map.h) defines their order.
template <int rank>
__device__ void cp_async_bulk_tensor_im2col(void* shared, const CUtensorMap& map,
                                            uint64_t* mbarrier, const int (&at)[rank],
                                            const uint16_t (&offset)[rank - 2]) {
  static_assert(rank >= 3 && rank <= 5);
  if constexpr (!has_sm90a) {
    __trap();
  } else if constexpr (rank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2], {%6};" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "h"(offset[0])
        : "memory");
  } else if constexpr (rank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
        "h"(offset[0]), "h"(offset[1])
        : "memory");
  } else if constexpr (rank == 5) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(mbarrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
        "r"(at[4]), "h"(offset[0]), "h"(offset[1]), "h"(offset[2])
        : "memory");
  }
}
// cp_async_bulk_tensor_store writes a box to a tiled tensor. cp_reduce_async_bulk_tensor_add adds
// it to the tensor; the bits of float sums depend on the order of blocks.
#define BV_TENSOR_STORE(name, instruction, kind)                                                \
  template <int rank>                                                                           \
  __device__ void name(const CUtensorMap& map, const void* shared, const int(&at)[rank]) {      \
    static_assert(rank >= 1 && rank <= 5);                                                      \
    if constexpr (!has_sm90a) {                                                                 \
      __trap();                                                                                 \
    } else if constexpr (rank == 1) {                                                           \
      asm volatile(instruction ".1d.global.shared::cta" kind                                    \
                               ".bulk_group "                                                   \
                               "[%0, {%2}], [%1];" ::"l"(&map),                                 \
                   "r"(shared_address(shared)), "r"(at[0])                                      \
                   : "memory");                                                                 \
    } else if constexpr (rank == 2) {                                                           \
      asm volatile(instruction ".2d.global.shared::cta" kind                                    \
                               ".bulk_group "                                                   \
                               "[%0, {%2, %3}], [%1];" ::"l"(&map),                             \
                   "r"(shared_address(shared)), "r"(at[0]), "r"(at[1])                          \
                   : "memory");                                                                 \
    } else if constexpr (rank == 3) {                                                           \
      asm volatile(instruction ".3d.global.shared::cta" kind                                    \
                               ".bulk_group "                                                   \
                               "[%0, {%2, %3, %4}], [%1];" ::"l"(&map),                         \
                   "r"(shared_address(shared)), "r"(at[0]), "r"(at[1]), "r"(at[2])              \
                   : "memory");                                                                 \
    } else if constexpr (rank == 4) {                                                           \
      asm volatile(instruction ".4d.global.shared::cta" kind                                    \
                               ".bulk_group "                                                   \
                               "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),                     \
                   "r"(shared_address(shared)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])  \
                   : "memory");                                                                 \
    } else if constexpr (rank == 5) {                                                           \
      asm volatile(instruction ".5d.global.shared::cta" kind                                    \
                               ".bulk_group "                                                   \
                               "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),                 \
                   "r"(shared_address(shared)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), \
                   "r"(at[4])                                                                   \
                   : "memory");                                                                 \
    }                                                                                           \
  }
BV_TENSOR_STORE(cp_async_bulk_tensor_store, "cp.async.bulk.tensor", ".tile")
BV_TENSOR_STORE(cp_reduce_async_bulk_tensor_add, "cp.reduce.async.bulk.tensor", ".add.tile")
#undef BV_TENSOR_STORE
// Contiguous bytes; their number and the addresses are multiples of 16.
__device__ inline void cp_async_bulk(void* shared, const void* global, unsigned bytes,
                                     uint64_t* mbarrier) {
  if constexpr (has_sm90a)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(shared)),
        "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(mbarrier))
        : "memory");
  else
    __trap();
}
__device__ inline void cp_async_bulk_store(void* global, const void* shared, unsigned bytes) {
  if constexpr (has_sm90a)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(global)),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
  else
    __trap();
}
__device__ inline void cp_async_bulk_commit_group() {
  if constexpr (has_sm90a)
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  else
    __trap();
}
// Waits until at most `pending` of the thread's groups are in flight (_read: still read shared
// memory).
template <int pending>
__device__ void cp_async_bulk_wait_group() {
  if constexpr (has_sm90a)
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
  else
    __trap();
}
template <int pending>
__device__ void cp_async_bulk_wait_group_read() {
  if constexpr (has_sm90a)
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
  else
    __trap();
}
#else
template <int rank>
void cp_async_bulk_tensor(void* shared, const CUtensorMap& map, uint64_t* mbarrier,
                          const int (&at)[rank], ::simt::Site site = ::simt::Site::current()) {
  ::simt::tensor_load(shared, map, mbarrier, at, rank, nullptr, site);
}
template <int rank>
void cp_async_bulk_tensor_im2col(void* shared, const CUtensorMap& map, uint64_t* mbarrier,
                                 const int (&at)[rank], const uint16_t (&offset)[rank - 2],
                                 ::simt::Site site = ::simt::Site::current()) {
  ::simt::tensor_load(shared, map, mbarrier, at, rank, offset, site);
}
template <int rank>
void cp_async_bulk_tensor_store(const CUtensorMap& map, const void* shared, const int (&at)[rank],
                                ::simt::Site site = ::simt::Site::current()) {
  ::simt::tensor_store(map, shared, at, rank, false, site);
}
template <int rank>
void cp_reduce_async_bulk_tensor_add(const CUtensorMap& map, const void* shared,
                                     const int (&at)[rank],
                                     ::simt::Site site = ::simt::Site::current()) {
  ::simt::tensor_store(map, shared, at, rank, true, site);
}
inline void cp_async_bulk(void* shared, const void* global, unsigned bytes, uint64_t* mbarrier,
                          ::simt::Site site = ::simt::Site::current()) {
  ::simt::bulk_load(shared, global, bytes, mbarrier, site);
}
inline void cp_async_bulk_store(void* global, const void* shared, unsigned bytes,
                                ::simt::Site site = ::simt::Site::current()) {
  ::simt::bulk_store(global, shared, bytes, site);
}
inline void cp_async_bulk_commit_group() { ::simt::bulk_commit(); }
template <int pending>
void cp_async_bulk_wait_group() {
  ::simt::bulk_wait(pending, false);
}
template <int pending>
void cp_async_bulk_wait_group_read() {
  ::simt::bulk_wait(pending, true);
}
#endif

}  // namespace bv::BAREVISION_GPU
