// Operations behind a kernel that still writes what they read: the launches of --kernels hopper may
// begin before it has ended, and must wait for it.
#pragma once
#include <set>
#include <string>

#include "tests/kernels/device.h"

namespace bv::test {

// While it is set, devices made by with_a_kernel_ahead() run each operation behind a kernel that
// writes all their memory, which holds NaN until then.
inline bool behind_a_kernel = false;

// The operations that ran so, and those of which a kernel began before the one ahead had ended.
struct RunBehind {
  std::set<std::string> all, early;
};
inline RunBehind run_behind;

// A device of the stand-in.
Device with_a_kernel_ahead(Device);

}  // namespace bv::test
