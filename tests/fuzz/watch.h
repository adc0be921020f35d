// What a reader may not do while it reads a mutant: allocate out of proportion, hang, crash.
#pragma once
#include <cstddef>
#include <cstdint>

namespace bv::test::fuzz {

// From here on an allocation that brings the memory taken since now above `bytes` is noted.
void begin_watch(uint64_t mutant, size_t bytes);
// Ends it; the most memory that was taken, or 0 where it stayed within the limit.
size_t end_watch();
// A mutant that takes longer than this ends the program with its number; so does a crash.
void arm(unsigned seconds);

}  // namespace bv::test::fuzz
