// While the processes train, node 0's launcher answers those that come too late for the start.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/connect/meeting_point.h"
#include "comm/connect/rendezvous_server.h"
#include "comm/processes/world.h"

namespace bv {

class FrontDoor {
 public:
  // why_closed: why nobody may wait for a restart; empty if they may.
  FrontDoor(const World&, std::string why_closed);
  // Answers those that have come. Takes half a second at most; heeds no signal.
  void look();
  const std::set<int>& waiting() const { return waiting_; }

 private:
  void accept_all();
  void answer_to(PendingPeer&);

  World world_;
  std::string why_closed_;
  std::unique_ptr<MeetingPoint> point_;
  Socket listener_;
  std::vector<PendingPeer> guests_;
  std::set<int> waiting_;  // --node-rank
};

}  // namespace bv
