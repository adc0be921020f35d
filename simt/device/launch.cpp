#include "simt/device/launch.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "simt/counters/recorder.h"
#include "simt/device/control.h"
#include "simt/device/thread_pool.h"
#include "simt/races/races.h"

namespace simt {
namespace {

class Names {
 public:
  void add(const Launch& launch) {
    const BlockSize size{launch.shared_bytes, launch.block.x * launch.block.y * launch.block.z};
    const std::lock_guard lock(mutex_);
    BlockSize& largest = sizes_[launch.name];
    largest = std::max(largest, size);
  }
  std::map<std::string, BlockSize> all() {
    const std::lock_guard lock(mutex_);
    return sizes_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, BlockSize> sizes_;
};

// Shared memory limits of kernels that requested more than the default.
class SharedLimits {
 public:
  void set(const void* function, size_t bytes) {
    const std::lock_guard lock(mutex_);
    limits_[function] = bytes;
  }
  size_t of(const void* function) {
    const std::lock_guard lock(mutex_);
    const auto found = limits_.find(function);
    return found == limits_.end() ? shared_bytes_unasked : found->second;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    limits_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<const void*, size_t> limits_;
};

SharedLimits& shared_limits() {
  static SharedLimits& all = *new SharedLimits;  // never destroyed, like names()
  return all;
}

Names& names() {
  static Names& run = *new Names;  // never destroyed: streams may launch during exit
  return run;
}

std::string str(dim3 d) {
  return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

}  // namespace

void set_shared_limit(const void* function, size_t bytes) { shared_limits().set(function, bytes); }
void forget_shared_limits() { shared_limits().forget(); }

std::map<std::string, BlockSize> largest_blocks_run() { return names().all(); }
std::set<std::string> kernels_run() {
  std::set<std::string> list;
  for (const auto& [name, size] : names().all()) list.insert(name);
  return list;
}

void check_limits(const Launch& launch) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(launch.name + ": " + why);
  };
  const dim3 grid = launch.grid, block = launch.block;
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535)
    refuse("a grid of " + str(grid) +
           " blocks, but it can have (1,1,1) to (2147483647,65535,65535)");
  if (!block.x || !block.y || !block.z || block.x > 1024 || block.y > 1024 || block.z > 64)
    refuse("a block of " + str(block) + " threads, but it can have (1,1,1) to (1024,1024,64)");
  if (block.x * block.y * block.z > 1024)
    refuse("a block of " + str(block) + " threads, together " +
           std::to_string(block.x * block.y * block.z) + ", but it can have 1024");
  const Chip& c = chip();
  if (launch.shared_bytes > static_cast<size_t>(c.shared_bytes))
    refuse(std::to_string(launch.shared_bytes) + " bytes of shared memory, but a block on " +
           c.name + " can have " + std::to_string(c.shared_bytes));
  if (const size_t limit = shared_limits().of(launch.function); launch.shared_bytes > limit)
    refuse(std::to_string(launch.shared_bytes) + " bytes of shared memory, but above " +
           std::to_string(limit) + " it must ask: cudaFuncAttributeMaxDynamicSharedMemorySize");
}

void run(const Launch& launch) {
  check_limits(launch);
  names().add(launch);
  if (only_names) return;
  if constexpr (watching)
    Races::instance().begin_launch(launch.name, {launch.block.x, launch.block.y, launch.block.z});
  if constexpr (counting)
    Lines::begin_launch(launch.name, {launch.grid.x, launch.grid.y, launch.grid.z},
                        {launch.block.x, launch.block.y, launch.block.z}, launch.shared_bytes);
  const std::string error = ThreadPool::instance().run(launch);
  if constexpr (watching) Races::instance().end_launch();
  if constexpr (counting) {
    count_bytes(launch.name.c_str(), launch.bytes_read, launch.bytes_written);
    count_launch(launch.name.c_str());
  }
  if (!error.empty()) throw std::runtime_error(error);
}

}  // namespace simt
