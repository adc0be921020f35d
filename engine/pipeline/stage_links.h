// Point-to-point traffic of a pipeline, overlapped with compute: activations on one channel,
// gradients on the other; each channel's exchanges run one after another. Whenever the synchronous
// schedule is free of deadlocks, so is this one, since each transfer starts no later. Without a
// communication stream this is the synchronous schedule.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "engine/model/channel.h"
#include "engine/model/profile.h"
#include "engine/pipeline/grid.h"
#include "engine/trace/trace.h"

namespace bv {

class StageLinks {
 public:
  static constexpr int streams = 2;  // uses communication streams 0 and 1
  // Collective over all processes.
  StageLinks(Backend&, Communicator& all, const Grid&);
  StageLinks(const StageLinks&) = delete;
  const Channel& channel() const { return channels_.front(); }  // for collectives
  Communicator& stages() const { return channel().communicator(); }

  // The channel for the outputs of a forward, or of a backward.
  int channel_of(bool forward) const {
    return forward ? 0 : static_cast<int>(channels_.size()) - 1;
  }
  int channels() const { return static_cast<int>(channels_.size()); }
  // Starts transfers after stream 0's work so far. Returns the exchange's number; the transfers'
  // memory must not be used before wait(number).
  size_t exchange(std::span<const Transfer>, int channel);
  void wait(size_t number);
  void wait_for_all();  // then numbers restart at 0, for the next recording

  void profile(Profile* to) { profile_ = to; }
  void trace(Trace* to) { trace_ = to; }

 private:
  template <class F>
  void waiting(F issue) const;  // traces and times stream 0's wait

  Backend* backend_;
  std::vector<Channel> channels_;
  std::vector<Event> events_;             // by exchange: its end
  std::vector<int> begun_;                // by exchange: its channel
  std::array<size_t, streams> waited_{};  // by channel: exchanges below this number need no wait
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv
