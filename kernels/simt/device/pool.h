// The host threads that run a launch's blocks: the caller, and helpers that sleep between launches.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/simt/device/block.h"

namespace simt {

class Pool {
 public:
  // Never destroyed: its helpers are asleep when the process ends.
  static Pool& instance();

  // All blocks of a launch; empty, or what is wrong with the first of them that failed.
  std::string run(const Launch&);

 private:
  struct Job;
  // 1,024 stacks for each, each two mappings: together below Linux's limit of 65,530.
  static constexpr size_t max_blocks = 24;

  Pool();
  void start_helpers();
  void help(Block&);
  static void work(Job&, Block&);

  std::mutex one_launch_;  // at a time: it takes all cores anyway
  std::vector<std::unique_ptr<Block>>
      blocks_;  // one for each host thread; the caller's is the first
  bool has_helpers_ = false;
  Job* job_ = nullptr;
  // The job can be joined while `open`; below that bit, how many helpers are at it. No lock: a
  // child of fork() has no helpers, and must not wait for what they held.
  static constexpr unsigned open = 1u << 31;
  std::atomic<unsigned> at_work_ = 0;
  std::atomic<unsigned> launches_ = 0;  // what helpers sleep on
};

}  // namespace simt
