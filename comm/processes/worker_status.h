// Reports a worker's step and run folder to its launcher, for a restart after a failure.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/local/rank_barrier.h"
#include "comm/processes/world.h"

namespace bv {

class WorkerStatus {
 public:
  // Opens the memory shared with the launcher. Starts a heartbeat if this process has no peers;
  // otherwise the communicator starts it.
  explicit WorkerStatus(const World&);
  void claimed(const std::string& folder);  // the run's; called by rank 0
  void begins(int64_t step);

 private:
  SharedRegion region_;
  RankStatus& self_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace bv
