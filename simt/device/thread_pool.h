// The host threads that run a launch's blocks: the caller, and helpers that sleep between launches.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "simt/device/block.h"

namespace simt {

class ThreadPool {
 public:
  // Never destroyed: its helpers may be asleep when the process ends.
  static ThreadPool& instance();

  // Runs all blocks of a launch. Returns the error of the first one that failed, or "".
  std::string run(const Launch&);

 private:
  struct Job;
  // A block has up to 1,024 stacks of two mappings each: 24 blocks stay below Linux's limit of
  // 65,530 mappings.
  static constexpr size_t max_blocks = 24;

  ThreadPool();
  void start_helpers();
  void help(Block&);
  static void work(Job&, Block&);

  std::mutex one_launch_;                       // one launch at a time: it uses all cores
  std::vector<std::unique_ptr<Block>> blocks_;  // one per host thread; the first is the caller's
  bool has_helpers_ = false;
  Job* job_ = nullptr;
  // While `open` is set, helpers may join the job; the lower bits count them. No lock: a child of
  // fork() has no helpers, and must not wait for a lock that a helper held.
  static constexpr unsigned open = 1u << 31;
  std::atomic<unsigned> at_work_ = 0;
  std::atomic<unsigned> launches_ = 0;  // helpers sleep on it
};

}  // namespace simt
