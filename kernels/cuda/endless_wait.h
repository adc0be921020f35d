// A wait for an mbarrier that never ends, as after a wrong parity, would keep a GPU busy for ever.
// Instead it tells the host where it is and traps. After a trap only the host's own memory can be
// read, so it writes to a page at an address that both sides know: this takes no argument, and no
// call, next to which ptxas would ignore setmaxnreg.
#pragma once
#include <cstdint>
#ifndef __CUDACC__
#include <string>
#endif

namespace bv::BAREVISION_GPU {

struct EndlessWait {
  static constexpr uintptr_t address = 0x5a0000000000;  // where Linux puts nothing by itself
  unsigned is_told;
  unsigned line, parity, block[3], thread[3];
  unsigned mbarrier;  // its shared address
  char file[128];
};

#ifndef __CUDACC__
// Lets the current device's kernels tell; without the driver's consent they only trap.
EndlessWait* hear_endless_waits();
// "; ..." for messages: what a kernel has told, or nothing. Null until someone hears.
inline std::string (*endless_wait)() = nullptr;
#else
[[noreturn]] __device__ __forceinline__ void tell_endless_wait(unsigned mbarrier, unsigned parity,
                                                               const char* file, unsigned line) {
  auto& to = *reinterpret_cast<EndlessWait*>(EndlessWait::address);
  if (atomicCAS(&to.is_told, 0u, 1u) == 0) {  // the others wait until this one traps
    to.line = line, to.parity = parity, to.mbarrier = mbarrier;
    to.block[0] = blockIdx.x, to.block[1] = blockIdx.y, to.block[2] = blockIdx.z;
    to.thread[0] = threadIdx.x, to.thread[1] = threadIdx.y, to.thread[2] = threadIdx.z;
    for (unsigned i = 0; i + 1 < sizeof to.file && file[i]; ++i) to.file[i] = file[i];
    __threadfence_system();
    __trap();
  }
  for (;;) __nanosleep(1000);
}
#endif

}  // namespace bv::BAREVISION_GPU
