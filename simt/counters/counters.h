// Counters like a profiler's, for kernels on the stand-in. The kernels of a counting build are
// compiled with the thread sanitizer's calls at every access to memory (hooks.cpp); accesses of a
// warp's lanes by the same instruction are one request. An instruction is identified by its address
// in the object code; its n-th execution in one lane is matched with its n-th execution in the
// others since the lanes last waited for each other.
//
// The model is that of sm_70 and later: global memory has sectors of 32 bytes; shared memory has 32
// banks of 4 bytes and serves accesses of 8 bytes per lane by half-warps, of 16 by quarter-warps.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace simt {

// Accesses of warps to global memory.
struct GlobalAccesses {
  uint64_t requests = 0;
  uint64_t sectors = 0;  // touched, each counted once per request
  uint64_t bytes = 0;    // requested by all lanes

  void operator+=(const GlobalAccesses& other) {
    requests += other.requests, sectors += other.sectors, bytes += other.bytes;
  }
};
// Accesses of warps to shared memory.
struct SharedAccesses {
  uint64_t requests = 0;
  uint64_t wavefronts = 0;  // turns
  uint64_t conflicts = 0;   // turns beyond the minimum for this width

  void operator+=(const SharedAccesses& other) {
    requests += other.requests, wavefronts += other.wavefronts, conflicts += other.conflicts;
  }
};

// Counters of one kernel. They count warps, not threads.
struct Counters {
  uint64_t launches = 0, blocks = 0, warps = 0;
  GlobalAccesses loads, stores;     // loads include cp.async
  SharedAccesses shared, ldmatrix;  // shared: loads, stores, writes by cp.async
  uint64_t cp_async_bytes = 0;
  uint64_t mma_m16n8k16 = 0, barriers = 0, shuffles = 0, votes = 0, atomics = 0;
  uint64_t partial = 0;  // requests in which some lanes of the warp took no part
  // Distinct sectors that a launch reads and writes: the memory traffic if the L2 cache keeps all
  // data that is reused within a launch, and nothing between launches.
  uint64_t sectors_read = 0, sectors_written = 0;
  // Hopper: bytes of global memory that TMA copies, sectors that the copied rows touch; mbarrier
  // waits of threads, and how many of them stalled.
  uint64_t tma_load_bytes = 0, tma_load_sectors = 0, tma_store_bytes = 0, tma_store_sectors = 0;
  uint64_t mbarrier_waits = 0, mbarrier_stalls = 0;
  // wgmmas, each counted once per warpgroup, m64nNk16 at index N / 8 - 1; their reads of operands.
  std::array<uint64_t, 32> wgmma{};
  SharedAccesses wgmma_reads;

  Counters& operator+=(const Counters&);
  Counters operator*(uint64_t times) const;
  uint64_t requests() const { return loads.requests + stores.requests; }
  uint64_t sectors() const { return loads.sectors + stores.sectors; }
  uint64_t bytes() const { return loads.bytes + stores.bytes; }
  uint64_t wgmma_flops() const;
  uint64_t moved() const { return 32 * (sectors_read + sectors_written); }
};

std::map<std::string, uint64_t> named_numbers(const Counters&);  // the counts by name: "load bytes"

// Returns the counters since the last call, by kernel name.
std::map<std::string, Counters> take_counters();
// False: launches are counted but not run.
inline bool kernels_run_at_all = true;

}  // namespace simt
