// The functions that g++ -fsanitize=thread calls before accesses to memory, for races.h. The thread
// sanitizer's library isn't linked. `make try` links AddressSanitizer's, and these functions check
// whether it has poisoned the bytes, since g++ can't insert the calls of both sanitizers.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simt/races/races.h"

#ifdef SIMT_POISON
#include <sanitizer/asan_interface.h>
extern "C" void __asan_report_load_n(const void*, size_t);
extern "C" void __asan_report_store_n(const void*, size_t);
extern "C" void __asan_get_shadow_mapping(size_t* scale, size_t* offset);
#endif

namespace simt {
namespace {

#ifdef SIMT_POISON
// Whether AddressSanitizer's shadow, one byte for every eight, may mark the bytes as poisoned.
bool may_be_poisoned(uintptr_t p, size_t bytes) {
  static const uintptr_t offset = [] {
    size_t scale = 0, at = 0;
    __asan_get_shadow_mapping(&scale, &at);
    return at;
  }();
  const uintptr_t high = ((uintptr_t{1} << 47) >> 3) + offset;  // the end of the shadow itself
  if (p >= uintptr_t{1} << 47 || (p >= offset && p < high)) return false;  // the access will fault
  for (uintptr_t at = p / 8; at <= (p + bytes - 1) / 8; ++at)
    if (*reinterpret_cast<const int8_t*>(at + offset)) return true;
  return false;
}
[[gnu::always_inline]] inline void check_poison(Touch touch, const void* p, size_t bytes) {
  if (!may_be_poisoned(reinterpret_cast<uintptr_t>(p), bytes) ||
      !__asan_region_is_poisoned(const_cast<void*>(p), bytes))
    return;
  touch == Touch::read ? __asan_report_load_n(p, bytes) : __asan_report_store_n(p, bytes);
}
#else
void check_poison(Touch, const void*, size_t) {}
#endif

[[gnu::always_inline]] inline void note(const void* place, Touch touch, size_t bytes, const void* p,
                                        bool is_flag = false) {
  check_poison(touch, p, bytes);
  if (Races::runs())
    return Races::instance().note(Races::place_of(place), touch, p, bytes, is_flag);
  if (touch != Touch::read) Unwritten::instance().wrote(p, bytes);
  if (Races::is_one_queued()) Races::instance().note_host(Races::place_of(place), touch, p, bytes);
}

}  // namespace
}  // namespace simt

#define PLACE __builtin_return_address(0)
#define ACCESS(name, kind, bytes, is_flag)                   \
  extern "C" void __tsan_##name(const void* p) {             \
    simt::note(PLACE, simt::Touch::kind, bytes, p, is_flag); \
  }
#define ACCESSES(bytes)                                     \
  ACCESS(read##bytes, read, bytes, false)                   \
  ACCESS(write##bytes, write, bytes, false)                 \
  ACCESS(unaligned_read##bytes, read, bytes, false)         \
  ACCESS(unaligned_write##bytes, write, bytes, false)       \
  ACCESS(volatile_read##bytes, read, bytes, true)           \
  ACCESS(volatile_write##bytes, write, bytes, true)         \
  ACCESS(unaligned_volatile_read##bytes, read, bytes, true) \
  ACCESS(unaligned_volatile_write##bytes, write, bytes, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" {
void __tsan_read_range(const void* p, size_t bytes) {
  simt::note(PLACE, simt::Touch::read, bytes, p);
}
void __tsan_write_range(const void* p, size_t bytes) {
  simt::note(PLACE, simt::Touch::write, bytes, p);
}
// The program calls these instead of libc's functions (mk/learn.mk).
void* simt_memcpy(void* to, const void* from, size_t bytes) {
  if (bytes) simt::note(PLACE, simt::Touch::read, bytes, from);
  if (bytes) simt::note(PLACE, simt::Touch::write, bytes, to);
  return std::memcpy(to, from, bytes);
}
void* simt_memmove(void* to, const void* from, size_t bytes) {
  if (bytes) simt::note(PLACE, simt::Touch::read, bytes, from);
  if (bytes) simt::note(PLACE, simt::Touch::write, bytes, to);
  return std::memmove(to, from, bytes);
}
void* simt_memset(void* to, int value, size_t bytes) {
  if (bytes) simt::note(PLACE, simt::Touch::write, bytes, to);
  return std::memset(to, value, bytes);
}
void __sanitizer_cov_trace_pc() {}  // for simt/counters
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** p, void*) { simt::note(PLACE, simt::Touch::write, sizeof *p, p); }
void __tsan_vptr_read(void** p) { simt::note(PLACE, simt::Touch::read, sizeof *p, p); }

// The order is seq_cst for __threadfence(), weaker for __threadfence_block() (intrinsics.h).
void __tsan_atomic_thread_fence(int order) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (simt::Races::runs())
    simt::Races::instance().fence(order == __ATOMIC_SEQ_CST ? simt::Scope::device
                                                            : simt::Scope::block);
}
void __tsan_atomic_signal_fence(int) {}
}

#define ATOMICS(bits)                                                                              \
  extern "C" {                                                                                     \
  using a##bits = uint##bits##_t;                                                                  \
  a##bits __tsan_atomic##bits##_load(const volatile a##bits* p, int) {                             \
    simt::note(PLACE, simt::Touch::read, sizeof *p, const_cast<a##bits*>(p), true);                \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile a##bits* p, a##bits x, int) {                          \
    simt::note(PLACE, simt::Touch::write, sizeof *p, const_cast<a##bits*>(p), true);               \
    __atomic_store_n(p, x, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_exchange(volatile a##bits* p, a##bits x, int) {                    \
    simt::note(PLACE, simt::Touch::atomic, sizeof *p, const_cast<a##bits*>(p));                    \
    return __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  a##bits __tsan_atomic##bits##_compare_exchange_val(volatile a##bits* p, a##bits old, a##bits x,  \
                                                     int, int) {                                   \
    simt::note(PLACE, simt::Touch::atomic, sizeof *p, const_cast<a##bits*>(p));                    \
    __atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
    return old;                                                                                    \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile a##bits* p, a##bits* old, a##bits x, \
                                                     int, int) {                                   \
    simt::note(PLACE, simt::Touch::atomic, sizeof *p, const_cast<a##bits*>(p));                    \
    return __atomic_compare_exchange_n(p, old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                                \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile a##bits* p, a##bits* old, a##bits x,   \
                                                   int, int) {                                     \
    simt::note(PLACE, simt::Touch::atomic, sizeof *p, const_cast<a##bits*>(p));                    \
    return __atomic_compare_exchange_n(p, old, x, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                                \
  }
#define FETCH(bits, operation)                                                               \
  extern "C" a##bits __tsan_atomic##bits##_fetch_##operation(volatile a##bits* p, a##bits x, \
                                                             int) {                          \
    simt::note(PLACE, simt::Touch::atomic, sizeof *p, const_cast<a##bits*>(p));              \
    return __atomic_fetch_##operation(p, x, __ATOMIC_SEQ_CST);                               \
  }
#define FETCHES(bits) \
  FETCH(bits, add)    \
  FETCH(bits, sub)    \
  FETCH(bits, and)    \
  FETCH(bits, or)     \
  FETCH(bits, xor)    \
  FETCH(bits, nand)
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
FETCHES(8)
FETCHES(16)
FETCHES(32)
FETCHES(64)
