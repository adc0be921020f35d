#include "simt/device/thread_pool.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "simt/device/break.h"
#include "simt/device/control.h"
#include "simt/device/faults.h"
#include "simt/device/watch.h"

namespace simt {
namespace {

constexpr uint64_t early_blocks = 8;

// The order of blocks: a permutation of 0 ... count - 1.
class BlockOrder {
 public:
  explicit BlockOrder(uint64_t count) : count_(count) {
    if (order == Order::reverse) first_ = count - 1, stride_ = count - 1;
    if (order == Order::random) {
      Random random{seed};
      first_ = random() % count;
      do stride_ = random() % count;
      while (std::gcd(stride_, count) != 1);
    }
  }
  uint64_t operator[](uint64_t place) const {
    return static_cast<uint64_t>((first_ + static_cast<unsigned __int128>(stride_) * place) %
                                 count_);
  }

 private:
  uint64_t count_, first_ = 0, stride_ = 1;
};

}  // namespace

struct ThreadPool::Job {
  const Launch& launch;
  uint64_t count;
  BlockOrder in_order{count};
  std::atomic<uint64_t> next = 0;
  uint64_t end = count;  // only the places before it are run for now
  bool hides_earlier_writes = false;
  // The first failing block in the launch's order always runs, so the message doesn't vary.
  std::mutex failure{};
  uint64_t failed_at = ~uint64_t{0};
  std::string error{};
};

ThreadPool& ThreadPool::instance() {
  static ThreadPool& pool = *new ThreadPool;
  return pool;
}

ThreadPool::ThreadPool() {
  const char* set = std::getenv("SIMT_CORES");  // 1: one block after another, for a debugger
  const size_t cores =
      std::max(1, set ? std::atoi(set) : static_cast<int>(std::thread::hardware_concurrency()));
  for (size_t i = 0; i < std::min(cores, max_blocks); ++i)
    blocks_.push_back(std::make_unique<Block>());
}

void ThreadPool::start_helpers() {
  has_helpers_ = true;
  for (size_t i = 1; i < blocks_.size(); ++i)
    std::thread([this, i] { help(*blocks_[i]); }).detach();
}

void ThreadPool::help(Block& block) {
  explain_faults_on_this_thread();
  for (unsigned seen = 0;; launches_.wait(seen)) {
    seen = launches_.load();
    for (unsigned n = at_work_.load(); n & open;)
      if (at_work_.compare_exchange_weak(n, n + 1)) {
        work(*job_, block);
        if (at_work_.fetch_sub(1) == 1) at_work_.notify_one();
        break;
      }
  }
}

void ThreadPool::work(Job& job, Block& block) {
  const Watched watched(block);
  const dim3 grid = job.launch.grid;
  for (uint64_t place; (place = job.next++) < job.end;) {
    const uint64_t i = job.in_order[place];
    const uint3 index{static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                      static_cast<unsigned>(i / grid.x / grid.y)};
    const auto& earlier_writes = job.launch.earlier_writes;
    if (job.hides_earlier_writes) earlier_writes(false);
    const bool ran = block.run(job.launch, index, seed * 0x9E3779B9u + static_cast<unsigned>(i));
    if (job.hides_earlier_writes) earlier_writes(true);
    if (ran) continue;
    job.next = job.count;
    const std::lock_guard lock(job.failure);
    if (place < job.failed_at) job.failed_at = place, job.error = block.error();
    return;
  }
}

std::string ThreadPool::run(const Launch& launch) {
  const std::lock_guard lock(one_launch_);
  Job job{.launch = launch, .count = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z};
  explain_faults_on_this_thread();
  // Only the first blocks begin early, one after another: the others run the same code.
  if (launch.earlier_writes) {
    job.hides_earlier_writes = true;
    job.end = std::min(job.count, early_blocks);
    work(job, *blocks_[0]);
    if (!job.error.empty()) return job.error;
    job.hides_earlier_writes = false;
    job.next = std::exchange(job.end, job.count);
  }
  const bool one_by_one = watching || breaks_in(launch);
  const bool shared_out = job.end - job.next > 1 && blocks_.size() > 1 && !one_by_one;
  if (shared_out) {
    if (!has_helpers_) start_helpers();
    job_ = &job;
    at_work_ = open;
    ++launches_;
    launches_.notify_all();
  }
  work(job, *blocks_[0]);
  if (shared_out) {
    at_work_ -= open;
    for (unsigned n; (n = at_work_.load()) != 0;) at_work_.wait(n);
  }
  return job.error;
}

}  // namespace simt
