// While the processes train, node 0's launcher answers launchers that connect after the start.
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
  // why_closed: why a late launcher can't join at the next restart; empty if it can.
  FrontDoor(const World&, std::string why_closed);
  // Answers the launchers that have connected. Takes half a second at most; ignores signals.
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
