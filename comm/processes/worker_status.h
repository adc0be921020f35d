// Tells the launcher that started a worker where it is, for the restart after its death.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "comm/local/rank_barrier.h"
#include "comm/processes/world.h"

namespace bv {

class WorkerStatus {
 public:
  // Joins the memory of the launcher. A process without peers, who would watch it, gets a heartbeat
  // for the launcher.
  explicit WorkerStatus(const World&);
  void claimed(const std::string& folder);  // the run's, by rank 0
  void begins(int64_t step);

 private:
  SharedRegion region_;
  RankStatus& self_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace bv
