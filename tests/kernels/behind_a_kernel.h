// Runs operations behind a kernel that still writes what they read: launches of --kernels hopper
// may begin before that kernel has ended, and must wait for it.
#pragma once
#include <set>
#include <string>

#include "tests/kernels/device.h"

namespace bv::test {

// While this is set, devices made by with_a_kernel_ahead() run each operation behind a kernel that
// writes all their memory, which holds NaN until then.
inline bool behind_a_kernel = false;

// all: the operations that ran behind such a kernel; early: those that began before it had ended.
struct RunBehind {
  std::set<std::string> all, early;
};
inline RunBehind run_behind;

// Wraps a device of the stand-in.
Device with_a_kernel_ahead(Device);

}  // namespace bv::test
