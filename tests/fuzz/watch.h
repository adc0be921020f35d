// Detects readers that allocate out of proportion, hang or crash on a mutant.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv::test::fuzz {

// Starts recording allocations; more than `bytes` at a time is a failure.
void begin_watch(uint64_t mutant, size_t bytes);
// Stops recording; returns the peak memory, or 0 if it stayed within the limit.
size_t end_watch();
// If the mutant takes more processor time than this, or ten times as much elapsed time, ends the
// program and reports the mutant's number; so does a crash. 0: no limit.
void arm(unsigned seconds);

}  // namespace bv::test::fuzz
