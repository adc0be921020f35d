// Whether this build counts what a profiler would (make counters). If false, no counting code is
// compiled.
#pragma once

namespace simt {

#ifdef SIMT_COUNTERS
inline constexpr bool counting = true;
#else
inline constexpr bool counting = false;
#endif

}  // namespace simt
