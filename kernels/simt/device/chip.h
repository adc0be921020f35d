// The chip that the stand-in plays, chosen by SIMT_ARCH: what it has room for.
#pragma once

namespace simt {

struct Chip {
  const char* name;  // "sm_80"
  int arch;          // 80
  int shared_bytes;  // that one block may have, when asked for
};

inline constexpr int shared_bytes_unasked = 48 * 1024;  // the same on every chip

// By the environment variable SIMT_ARCH; sm_80 without it. Throws std::runtime_error on a name that
// there isn't, with those that there are.
const Chip& chip();

}  // namespace simt
