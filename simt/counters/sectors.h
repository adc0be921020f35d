// The sectors of device memory that the running launch has touched.
#pragma once
#include <cstdint>

namespace simt {

void touch_sector(uintptr_t address_by_32, bool written);  // by any thread
struct TouchedSectors {
  uint64_t read, written;
};
TouchedSectors take_touched_sectors();  // counts and clears them; called while no block runs

}  // namespace simt
