// What tests choose of the stand-in, and what it can tell them.
#pragma once
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <string>

namespace simt {

// A GPU leaves open which thread goes on first after a wait, in which order blocks run, and when an
// asynchronous copy lands between its issue and its wait. Right kernels give the same bits in each:
//   forward   lowest first; copies land as late as they may
//   reverse   highest first; copies land at once
//   random    drawn from `seed`, each of them
enum class Order { forward, reverse, random };
inline Order order = Order::forward;  // of the launches to come
inline unsigned seed = 1;

// When queued operations run. 0: as late as they may, what was queued last before the rest. 1: at
// the call. Others: at random between, some seeds with one stream far ahead of the others.
inline unsigned stream_seed = 0;
inline size_t memory_bytes = size_t{16} << 30;  // of the device

// Since the program began: calls by which the host waits for the device, kernels and graphs that it
// has launched (kernels of a graph are not counted one by one).
size_t host_synchronizations();
size_t launches();
size_t graph_launches();
void run_all();  // all that is queued; not counted as a synchronisation of the host

// Names of all kernels that ran in this process, as in "layernorm_forward<float, 8>".
std::set<std::string> kernels_run();
// Of each of them the largest block: the one with most shared memory.
struct BlockSize {
  size_t shared_bytes = 0;
  unsigned threads = 0;
  auto operator<=>(const BlockSize&) const = default;
};
std::map<std::string, BlockSize> largest_blocks_run();

}  // namespace simt
