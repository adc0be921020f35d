#include "kernels/simt/libraries/nccl_operation.h"

#include <algorithm>

#include "kernels/simt/libraries/nccl_communicator.h"

namespace simt::nccl {

Operation::Operation(SimtNcclComm& comm, std::shared_ptr<const std::vector<Call>> calls)
    : comm_(comm), calls_(std::move(calls)) {
  comm_.queue.push_back(this);
}
Operation::~Operation() { std::erase(comm_.queue, this); }

void Operation::begin() {
  number_ = ++comm_.operations;
  comm_.begin_operation();
  for (const Call& call : *calls_) {
    auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                             [&](const Lane& l) { return l.number == call.lane; });
    if (lane == lanes_.end()) lane = lanes_.insert(lane, Lane{call.lane, {}, {}});
    lane->calls.push_back(&call);
  }
}

// A communicator's operations run one after another, as on a GPU.
bool Operation::advance() {
  if (comm_.queue.front() != this) return false;
  if (number_ == 0) begin();
  for (Lane& lane : lanes_)
    while (!lane.calls.empty()) {
      if (!lane.part) lane.part = lane.calls.front()->begin();
      if (!lane.part.advance()) break;
      lane.part = {};
      lane.calls.pop_front();
    }
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.calls.empty(); });
}

void Operation::add_waits(std::vector<Wait>& waits) const {
  for (const Lane& lane : lanes_)
    if (!lane.calls.empty())
      waits.push_back(comm_.wait_of(lane.calls.front()->what, number_, lane.part.until()));
}

void Operation::sleep(const std::vector<host::UnderWay*>& all) {
  std::vector<Wait> waits;
  for (const host::UnderWay* one : all) {
    const auto& operation = static_cast<const Operation&>(*one);
    // Of whom another job's ranks wait for, this one's memory says nothing.
    if (operation.comm_.job != comm_.job) return comm_.job->sleep({});
    operation.add_waits(waits);
  }
  comm_.job->sleep(waits);
}

}  // namespace simt::nccl
