// All other files are compiled for x86-64-v3 (AVX2, FMA, BMI, F16C, LZCNT, MOVBE). An older CPU
// would hit an illegal instruction before main; this check runs first and prints a message instead.
// This file is compiled for any x86-64 CPU, and calls only code that is, too.
#include <cpuid.h>
#include <unistd.h>

namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

// Whether the operating system saves the YMM registers (XCR0 bits 1 and 2).
bool saves_ymm() {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 6) == 6;
}

bool has(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

bool is_x86_64_v3() {
  const Registers basic = cpuid(1), features = cpuid(7), extended = cpuid(0x80000001);
  return has(basic.ecx, bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C) &&
         has(features.ebx, bit_BMI | bit_AVX2 | bit_BMI2) && has(extended.ecx, bit_LZCNT) &&
         saves_ymm();
}

__attribute__((constructor(101))) void check_cpu() {
  if (is_x86_64_v3()) return;
  constexpr char line[] =
      "barevision needs a CPU with AVX2, FMA, BMI2 and F16C (x86-64-v3: Intel since 2013, AMD "
      "since 2015); this one is older\n";
  if (write(STDERR_FILENO, line, sizeof line - 1) < 0) _exit(2);
  _exit(2);
}

}  // namespace
