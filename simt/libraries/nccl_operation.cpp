#include "simt/libraries/nccl_operation.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "simt/libraries/nccl_communicator.h"

namespace simt::nccl {
namespace {

using Clock = std::chrono::steady_clock;

double link_bytes_per_second() {
  static const char* const set = std::getenv("SIMT_NCCL_LINK");
  return set ? std::atof(set) * 1e6 : 0;
}

// This rank's link carries one message after another. Returns the time at which the bytes arrive.
Clock::time_point carry(uint64_t bytes) {
  static Clock::time_point free{};
  free = std::max(free, Clock::now()) +
         std::chrono::duration_cast<Clock::duration>(
             std::chrono::duration<double>(double(bytes) / link_bytes_per_second()));
  return free;
}

uint64_t all_sent() {
  return std::accumulate(std::begin(Job::bytes_sent), std::end(Job::bytes_sent), uint64_t{0});
}

}  // namespace

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
  const uint64_t sent = all_sent();
  run_lanes();
  if (link_bytes_per_second() > 0 && all_sent() > sent) carried_ = carry(all_sent() - sent);
  return !on_link() &&
         std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.calls.empty(); });
}

void Operation::run_lanes() {
  for (Lane& lane : lanes_)
    while (!lane.calls.empty()) {
      if (!lane.part) lane.part = lane.calls.front()->begin();
      if (!lane.part.advance()) break;
      lane.part = {};
      lane.calls.pop_front();
    }
}

void Operation::add_waits(std::vector<Wait>& waits) const {
  for (const Lane& lane : lanes_)
    if (!lane.calls.empty())
      waits.push_back(comm_.wait_of(lane.calls.front()->what, number_, lane.part.until()));
}

void Operation::sleep(const std::vector<host::UnderWay*>& all) {
  std::vector<Wait> waits;
  for (const host::UnderWay* one : all) {
    const auto* operation = dynamic_cast<const Operation*>(one);
    if (!operation || operation->on_link()) return std::this_thread::sleep_for(moment);
    // This job's memory does not show the waits of another job's ranks.
    if (operation->comm_.job != comm_.job) return comm_.job->sleep({});
    operation->add_waits(waits);
  }
  comm_.job->sleep(waits);
}

}  // namespace simt::nccl
