// The functions that code compiled by g++ -fsanitize=thread calls before accesses to memory. g++
// inserts the calls after removing redundant accesses and before unrolling and vectorising, so they
// are close to the accesses that nvcc keeps; with -fno-tree-sra, it copies structs as a whole. The
// sanitizer's own library isn't linked.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simt/counters/recorder.h"

namespace simt {
namespace {

void note(const void* place, AccessKind kind, size_t bytes, const void* address) {
  if (!Recorder::runs()) return;
  constexpr size_t widest = 16;  // bytes of one instruction
  for (size_t at = 0; at < bytes; at += widest)
    Recorder::here().note(static_cast<const char*>(place) + at / widest, kind,
                          unsigned(bytes - at < widest ? bytes - at : widest),
                          static_cast<const char*>(address) + at);
}

}  // namespace
}  // namespace simt

#define PLACE __builtin_return_address(0)
#define ACCESS(name, kind, bytes)                        \
  extern "C" void __tsan_##name(const void* p) {         \
    simt::note(PLACE, simt::AccessKind::kind, bytes, p); \
  }
#define ACCESSES(bytes)                      \
  ACCESS(read##bytes, load, bytes)           \
  ACCESS(write##bytes, store, bytes)         \
  ACCESS(unaligned_read##bytes, load, bytes) \
  ACCESS(unaligned_write##bytes, store, bytes)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" {
// Called at the start of each basic block (g++ -fsanitize-coverage=trace-pc).
void __sanitizer_cov_trace_pc() {
  if (simt::Lines::on && simt::Recorder::runs()) simt::Recorder::here().enter_piece(PLACE);
}
void __tsan_read_range(const void* p, size_t bytes) {
  simt::note(PLACE, simt::AccessKind::load, bytes, p);
}
void __tsan_write_range(const void* p, size_t bytes) {
  simt::note(PLACE, simt::AccessKind::store, bytes, p);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// The atomic operations that this project's kernels use; any other one is a linker error.
void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic8_store(uint8_t* p, uint8_t x, int) { std::atomic_ref(*p).store(x); }
uint32_t __tsan_atomic32_fetch_add(uint32_t* p, uint32_t x, int) {
  simt::note(PLACE, simt::AccessKind::atomic, sizeof *p, p);
  return std::atomic_ref(*p).fetch_add(x);
}
}
