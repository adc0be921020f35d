// Whether this build watches each access of a kernel for races (make try, make racecheck). If
// false, no code that watches is compiled.
#pragma once

namespace simt {

#ifdef SIMT_RACES
inline constexpr bool watching = true;
#else
inline constexpr bool watching = false;
#endif

}  // namespace simt
