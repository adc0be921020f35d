// Enables emulated bf16 on the device `cpu`, for tests.
#pragma once
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/machine.h"

namespace bv::test {

// During its lifetime, bf16 works on any CPU with AVX-512, here and in programs started from here.
class EmulatedBf16 {
 public:
  EmulatedBf16() { setenv("BAREVISION_BF16", "emulated", 1); }
  ~EmulatedBf16() { unsetenv("BAREVISION_BF16"); }
  EmulatedBf16(const EmulatedBf16&) = delete;
  EmulatedBf16& operator=(const EmulatedBf16&) = delete;
  // Why emulation is impossible; empty if it is possible.
  std::string lack() const {
    const char* isa = std::getenv("BAREVISION_ISA");
    if (isa && std::string_view(isa) == "avx2") return "AVX-512 is switched off";
    return has_avx512() ? "" : "this CPU has no AVX-512";
  }
};

}  // namespace bv::test
