// The launchers of a run on several machines meet before each start, so that no process starts
// while one of the attempt before still runs, and agree on the restart and on the nodes that take
// part in it.
#pragma once
#include <memory>
#include <set>
#include <vector>

#include "comm/connect/front_door.h"
#include "comm/processes/launch.h"
#include "comm/processes/restart.h"

namespace bv {

class Launchers : public OtherLaunchers {
 public:
  // Returns what node 0 has chosen from all: an end for good if one has failed so or all have ended
  // well, else the restart with the highest number, and the end that was seen at first hand. If too
  // few launchers come within three times the timeout, throws UserError at a run's first start; at
  // a later one RunError, after ten times the timeout, in which they may be started again; after an
  // end that has failed, three times.
  Agreement meet(const Launch&, const Restart& own) override;
  // On node 0, if the number of nodes may change.
  void answer_latecomers(const Restart&) override;

 private:
  Agreement meet_once(const World&, const Restart& own, double wait, bool starts);
  Quorum quorum_of(const World&, bool starts) const;

  std::unique_ptr<FrontDoor> door_;
  World world_;               // of the last meeting
  double timeout_ = 0;        // seconds
  std::vector<int> members_;  // that the last meeting had, by --node-rank
  std::set<int> waiting_;     // that have come since
};

}  // namespace bv
