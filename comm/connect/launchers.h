// The launchers of a run on several machines meet before each start, so that no process starts
// while one of the previous attempt still runs, and agree on the restart and on the nodes that take
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
  // Returns node 0's choice among all reports: the final end if one launcher has failed for good or
  // all have ended well, else the restart with the highest number. Waits for the other launchers
  // for three times the timeout at a run's first start and after a final failure, otherwise for ten
  // times, since they may have to be started again. If too few connect, throws UserError at the
  // first start, RunError later. A start with Launch::begun counts as a later one.
  Agreement meet(const Launch&, const Restart& own) override;
  // Does nothing unless this is node 0 and the number of nodes may vary.
  void answer_latecomers(const Restart&) override;

 private:
  Agreement meet_once(const World&, const Restart& own, double wait, bool starts);
  Quorum quorum_of(const World&, bool starts) const;

  std::unique_ptr<FrontDoor> door_;
  World world_;               // of the last meeting
  double timeout_ = 0;        // seconds
  std::vector<int> members_;  // --node-rank of each launcher at the last meeting
  std::set<int> waiting_;     // --node-rank of those that connected since
};

}  // namespace bv
