// Detects readers that allocate out of proportion, hang or crash on a mutant.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv::test::fuzz {

// Starts recording allocations; more than `bytes` at a time is a failure.
void begin_watch(uint64_t mutant, size_t bytes);
// Stops recording; returns the peak memory, or 0 if it stayed within the limit.
size_t end_watch();
// Ends the program, reporting the mutant's number, if the mutant computes longer than this or waits
// ten times as long; a crash does the same. 0: no limit.
void arm(unsigned seconds);

}  // namespace bv::test::fuzz
