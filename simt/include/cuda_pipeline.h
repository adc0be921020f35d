// CUDA's asynchronous copies to shared memory for g++; each thread commits its own in groups.
#pragma once
#include "simt/include/cuda_runtime.h"

inline namespace simt_cuda {

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes,
                                    size_t zero_filled = 0,
                                    simt::Site site = simt::Site::current()) {
  if (bytes != 4 && bytes != 8 && bytes != 16) simt::fail("copies neither 4, 8 nor 16 bytes", site);
  simt::copy_async(shared, global, bytes, bytes - zero_filled, site);
}
inline void __pipeline_commit() { simt::copy_commit(); }
// Waits until at most the last `pending` groups are in flight.
inline void __pipeline_wait_prior(size_t pending) {
  simt::copy_wait(static_cast<unsigned>(pending));
}

}  // namespace simt_cuda
