// Hopper's instructions for g++, called by the wrappers in kernels/cuda/hopper/ptx_sm90.cuh and
// ptx_tma.cuh. TMA coordinates count elements, the innermost dimension first.
#pragma once
#include <cstddef>
#include <cstdint>

#include "simt/hopper/async_proxy.h"
#include "simt/hopper/tensor_map.h"

namespace simt {

void mbarrier_init(uint64_t*, unsigned arrivals, Site);
void mbarrier_inval(uint64_t*, Site);
void mbarrier_arrive(uint64_t*, Site);
void mbarrier_expect_tx(uint64_t*, unsigned bytes, Site);
void mbarrier_arrive_expect_tx(uint64_t*, unsigned bytes, Site);
bool mbarrier_try_wait_parity(uint64_t*, unsigned parity, Site);
void mbarrier_wait_parity(uint64_t*, unsigned parity, Site);
void fence_mbarrier_init();

// `at` has `rank` coordinates; `offsets` has rank - 2 for im2col, otherwise it is null.
void tensor_load(void* shared, const CUtensorMap&, uint64_t* mbarrier, const int* at, unsigned rank,
                 const uint16_t* offsets, Site);
void tensor_store(const CUtensorMap&, const void* shared, const int* at, unsigned rank, bool adds,
                  Site);
void bulk_load(void* shared, const void* global, unsigned bytes, uint64_t* mbarrier, Site);
void bulk_store(void* global, const void* shared, unsigned bytes, Site);
void bulk_commit();
void bulk_wait(unsigned pending, bool only_reads);

unsigned thread_in_block();
// griddepcontrol.wait: waits until no thread of the block can run.
void grid_dependency_wait(Site);

// Each lane that passes the address of a row calls this before stmatrix writes it.
void check_stmatrix(const void* row, Site);
void set_max_registers(bool increase, unsigned registers, Site);
bool elect(uint32_t mask, Site);

}  // namespace simt
