// Detects readers that allocate out of proportion, hang or crash on a mutant.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv::test::fuzz {

// Starts recording allocations; more than `bytes` at a time is a failure.
void begin_watch(uint64_t mutant, size_t bytes);
// Stops; returns the peak memory, or 0 if it stayed within the limit.
size_t end_watch();
// A mutant that computes longer, or waits ten times as long, ends the program, reporting its
// number; so does a crash. 0: no limit.
void arm(unsigned seconds);

}  // namespace bv::test::fuzz
