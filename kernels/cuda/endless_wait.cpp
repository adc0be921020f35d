#include "kernels/cuda/endless_wait.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

namespace bv {

inline void* const endless_wait_page =
    mmap(reinterpret_cast<void*>(0x5a0000000000), 4096, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

namespace BAREVISION_GPU {
namespace {

EndlessWait* page() {
  const bool is_there = endless_wait_page == reinterpret_cast<void*>(EndlessWait::address);
  return is_there ? static_cast<EndlessWait*>(endless_wait_page) : nullptr;
}
template <class T>
void let_kernels_write(T* page) {
  constexpr unsigned portable_and_mapped = 3;
  if constexpr (requires { cudaHostRegister(page, 4096, portable_and_mapped); })  // not on simt
    if (cudaHostRegister(page, 4096, portable_and_mapped) != cudaSuccess) cudaGetLastError();
}
std::string at(const unsigned (&index)[3]) {
  return "(" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
         std::to_string(index[2]) + ")";
}

std::string told() {
  if (!page() || !page()->is_told) return "";
  const EndlessWait& w = *page();
  return "; " + std::string(w.file) + ":" + std::to_string(w.line) + ": thread " + at(w.thread) +
         " of block " + at(w.block) + " waited 4 s for the end of a phase of parity " +
         std::to_string(w.parity) + " of the mbarrier at shared address " +
         std::to_string(w.mbarrier);
}

}  // namespace

EndlessWait* hear_endless_waits() {
  if (page()) let_kernels_write(page());
  endless_wait = told;
  return page();
}

}  // namespace BAREVISION_GPU
}  // namespace bv
