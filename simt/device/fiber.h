// A fiber: a call that can be suspended and resumed, with its own stack. A dozen lines of assembly
// switch stacks; AddressSanitizer is informed of each switch.
#pragma once
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace simt {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool asan = true;
#else
inline constexpr bool asan = false;
#endif

struct Stack {
  char* low = nullptr;  // below it a guard page: an overflow stops there, see faults.cpp
  size_t bytes = 0;
};

inline constexpr size_t stack_bytes = (asan ? 256 : 64) * 1024, guard_bytes = 4096;

// A pool of stacks that grows on demand.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  Stack take() {
    if (free_.empty()) make_some();
    const Stack stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give_back(Stack stack) { free_.push_back(stack); }
  void give_back_all() { free_ = all_; }

 private:
  void make_some();

  std::vector<char*> mappings_;
  std::vector<Stack> all_, free_;
};

// Pushes rbp, rbx and the resume address onto the current stack (the other registers are clobbers,
// which the compiler saves), stores the stack pointer in `from`, and continues on the stack `to`.
// Inlined: CPUs predict returns by pairing them with calls, and a mispredicted return, as after a
// library function that switches stacks, would cost more than everything else here.
[[gnu::always_inline]] inline void switch_stacks(void** from, void* to) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"  // the red zone
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n\t"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
        "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15", "memory", "cc");
}

struct Fiber {
  void* top = nullptr;  // its stack pointer, while others run; null: not begun
  Stack stack;
  void* fake_stack = nullptr;  // AddressSanitizer's

  // `enter` must call landed() first and never return.
  void begin_on(Stack s, void (*enter)()) {
    stack = s;
    fake_stack = nullptr;
    if constexpr (asan) __asan_unpoison_memory_region(s.low, s.bytes);  // poisoned by its last user
    // The stack as a call leaves it: `enter` to jump to, and a null return address.
    auto* const words = reinterpret_cast<void**>(s.low + s.bytes) - 4;
    words[0] = reinterpret_cast<void*>(enter);
    words[1] = nullptr;
    top = words;
  }

  // Called when control reaches this fiber; sets *left, unless null, to the stack it came from.
  void landed(Stack* left = nullptr) {
    if constexpr (asan) {
      const void* low = nullptr;
      size_t bytes = 0;
      __sanitizer_finish_switch_fiber(fake_stack, &low, &bytes);
      if (left) *left = {static_cast<char*>(const_cast<void*>(low)), bytes};
    }
  }

  // Returns when another fiber switches back to this one; never if this one `ends`.
  [[gnu::always_inline]] void switch_to(Fiber& to, bool ends) {
    if constexpr (asan)
      __sanitizer_start_switch_fiber(ends ? nullptr : &fake_stack, to.stack.low, to.stack.bytes);
    switch_stacks(&top, to.top);
    landed();
  }
};

}  // namespace simt
