// The limits of the chip that the stand-in imitates, chosen by SIMT_ARCH.
#pragma once

namespace simt {

struct Chip {
  const char* name;  // "sm_80"
  int arch;          // 80
  int shared_bytes;  // maximum per block, on request
};

inline constexpr int shared_bytes_unasked = 48 * 1024;  // without a request, on every chip

// The chip that the environment variable SIMT_ARCH names, by default sm_80. Throws a
// std::runtime_error that lists the known names if the name is unknown.
const Chip& chip();

}  // namespace simt
