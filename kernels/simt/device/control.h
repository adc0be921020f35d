// What tests can set in the stand-in, and ask it.
#pragma once
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace simt {

// A GPU does not specify which thread resumes first after a wait, in which order blocks run, or
// when an asynchronous copy lands between its issue and its wait. Correct kernels give the same
// bits in each:
//   forward   lowest first; copies land as late as possible
//   reverse   highest first; copies land at once
//   random    each drawn from `seed`
enum class Order { forward, reverse, random };
inline Order order = Order::forward;  // of future launches
inline unsigned seed = 1;

// When queued operations run. 0: as late as possible, those queued last first. 1: at the call.
// Others: at random in between, some seeds with one stream far ahead of the others.
inline unsigned stream_seed = 0;
inline size_t memory_bytes = size_t{16} << 30;  // of the device

// Since the program began: the calls by which the host waited for the device, the kernels and
// graphs it launched (a graph's kernels are not counted).
size_t host_synchronizations();
size_t launches();
size_t graph_launches();
void run_all();  // runs all that is queued; not counted as a synchronisation

// Names of all kernels that ran in this process, as in "layernorm_forward<float, 8>".
std::set<std::string> kernels_run();
// The largest block of each: the one with the most shared memory.
struct BlockSize {
  size_t shared_bytes = 0;
  unsigned threads = 0;
  auto operator<=>(const BlockSize&) const = default;
};
std::map<std::string, BlockSize> largest_blocks_run();

}  // namespace simt
