// Visibility on Hopper between a block's ordinary accesses to shared memory and those of the async
// proxy (TMA, wgmma), which PTX orders only by fences and waits.
//
// Nothing intercepts a thread's stores. Once a block has executed an instruction of Hopper's units
// other than griddepcontrol.wait, shared memory is compared with a copy whenever another thread
// takes over; bytes that have changed are attributed to the thread that ran. A store of the value
// that is already there isn't seen. Ordinary loads aren't seen either; before a wait for a TMA
// load, they may read NaN. Bytes written before that instruction have no known writer: any later
// fence, by any thread, makes them visible.
//
// Each function is called by the running thread. An error ends the launch, as in simt::fail:
// "KERNEL: block (0,0,0): thread (3,0,0) WHAT at FILE:LINE:COLUMN".
#pragma once
#include <cstddef>

#include "simt/device/device.h"

namespace simt {

// Bytes of shared memory.
struct Bytes {
  const void* begin;
  size_t count;
};

// The async proxy reads these bytes now, for the instruction `who` ("wgmma"): an error if one of
// them was written by a thread that has not executed fence.proxy.async since, or belongs to a TMA
// load that nothing has waited for.
void async_read(Bytes, const char* who, Site);

// The async proxy may read these bytes until they are released: a TMA load or an ordinary store
// into them meanwhile is an error that names both. `who` must outlive the hold. 0 is no hold.
using Hold = unsigned;
Hold hold_read(Bytes, const char* who, Site);
void release_read(Hold);

// Makes the running thread's stores so far visible to the async proxy (fence.proxy.async).
void fence_proxy_async();

// `thread` of the block has just written these bytes while another thread runs: an instruction of
// a whole warp, such as stmatrix, calls this after its writes, and note_writes() before them.
void ordinary_write(Bytes, unsigned thread, const char* who, Site);
// Attributes the bytes that have changed so far to the running thread.
void note_writes();

}  // namespace simt
