// Whether this build counts what a profiler would (make counters). Where it is false nothing of it
// is compiled.
#pragma once

namespace simt {

#ifdef SIMT_COUNTERS
inline constexpr bool counting = true;
#else
inline constexpr bool counting = false;
#endif

}  // namespace simt
