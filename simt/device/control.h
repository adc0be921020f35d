// Settings and queries of the stand-in, for tests.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace simt {

// A GPU does not specify which thread resumes first after a wait, in which order blocks run, or
// when an asynchronous copy lands between its issue and its wait. Correct kernels give the same
// bits in each order:
//   forward   lowest first; copies land as late as possible
//   reverse   highest first; copies land at once
//   random    each drawn from `seed`
enum class Order { forward, reverse, random };
inline Order order = Order::forward;  // of future launches
inline unsigned seed = 1;

// When a TMA copy lands (simt/hopper). late: once no thread can run, a store at its wait; early: at
// once; random: drawn for each copy; as_order: as `order` specifies for copies.
enum class Delivery { as_order, late, early, random };
inline Delivery delivery = Delivery::as_order;
// Whether a copy that asks this lands early; empty: drawn for each copy.
std::optional<bool> lands_early();

// How products of 16-bit operands are summed (tensor_cores.h). Volta and Turing: {4, 1}, Ampere
// {8, 1}, Hopper {16, 2}; {0, 0}: rounded to nearest, in order.
struct TensorCores {
  int block, extra_bits;
};
inline TensorCores tensor_cores{0, 0};

// When queued operations run. 0: as late as possible, the last queued first. 1: at the call. Other
// values: random in between, some seeds with one stream far ahead of the others. The environment
// variable SIMT_STREAM_SEED sets its initial value, 0 by default.
inline unsigned stream_seed = [] {
  const char* set = std::getenv("SIMT_STREAM_SEED");
  return set ? static_cast<unsigned>(std::strtoul(set, nullptr, 10)) : 0;
}();
inline size_t memory_bytes = size_t{16} << 30;  // of the device
inline int multiprocessors = 3;                 // of the device: few, and not a power of two
// Device memory taken in addition to allocations: at the first launch (a driver's modules), and at
// a communicator's first collective (NCCL's buffers). The call fails if less is left.
inline size_t launch_takes = 0, collective_takes = 0;

// Counts since the program began: waits of the host for the device, and the kernels and graphs that
// it launched (kernels inside graphs are not counted).
size_t host_synchronizations();
size_t launches();
size_t graph_launches();
// Kernels that began before the kernel ahead of them had ended (launch_dependent).
size_t early_kernels();
// Waits of the host that would spin on a core, because the event lacks cudaEventBlockingSync.
size_t spinning_waits();
// The priorities at which each kernel and collective has run since the last reset, by name, outside
// and inside graphs.
std::map<std::string, std::set<int>> priorities_run();
// Bytes that this process has sent to each rank by NCCL: messages, and its share of collectives,
// which are counted as if they were rings in rank order.
std::map<int, uint64_t> nccl_bytes_sent();
// Called by a host thread while it waits for something other than the device: runs a part of what
// other processes or threads may wait for: collectives, host functions and what precedes them.
// Returns for how many milliseconds the thread may sleep before the next call: 0 if something ran,
// INT_MAX if nothing of that kind is queued.
int let_queues_proceed();
void run_all();  // runs all that is queued; not counted as a synchronisation

// Meetings since forget_meetings(): only they can make a kernel's results depend on these settings.
//   threads   `order`: what a thread computes depends on nothing but what it reads, so their order
//             matters only where one reads or overwrites what another of its launch writes. Without
//             a race (simt/races) that takes a wait for others (barriers, votes, shuffles, products
//             of a warp, mbarriers), shared memory (ordered or not; asynchronous copies need it),
//             an atomic, or a fence, by which a thread hands on what it wrote. Kernels of a stream,
//             which see each other's writes, don't meet.
//   copies    `delivery`: a copy or product asked when to land
struct Meetings {
  bool threads, copies;
};
Meetings meetings();
void forget_meetings();

// Names of all kernels that ran in this process, as in "layernorm_forward<float, 8>".
std::set<std::string> kernels_run();
inline bool only_names = false;  // launches are checked and named there, but don't run
// Each kernel's largest block: the one with the most shared memory.
struct BlockSize {
  size_t shared_bytes = 0;
  unsigned threads = 0;
  auto operator<=>(const BlockSize&) const = default;
};
std::map<std::string, BlockSize> largest_blocks_run();

}  // namespace simt
