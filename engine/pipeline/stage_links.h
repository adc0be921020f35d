// Point-to-point traffic of a pipeline, overlapped with compute: activations on one channel,
// gradients on the other; each channel's exchanges run one after another. Deadlock-free whenever
// the synchronous schedule is, since each transfer starts no later than there. Without a second
// stream it is the synchronous schedule.
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
  static constexpr int streams = 2;  // communication streams 0, 1 are theirs
  // Collective over all processes.
  StageLinks(Backend&, Communicator& all, const Grid&);
  StageLinks(const StageLinks&) = delete;
  const Channel& channel() const { return channels_.front(); }  // for collectives
  Communicator& stages() const { return channel().communicator(); }

  // On which channel a forward's outputs travel, or a backward's.
  int channel_of(bool forward) const {
    return forward ? 0 : static_cast<int>(channels_.size()) - 1;
  }
  int channels() const { return static_cast<int>(channels_.size()); }
  // Begins after what stream 0 has been given so far. The transfers' memory is theirs until stream
  // 0 has waited for the number that is returned.
  size_t exchange(std::span<const Transfer>, int channel);
  void wait(size_t number);
  void wait_for_all();  // numbers start over: at the end of what is recorded

  void profile(Profile* to) { profile_ = to; }
  void trace(Trace* to) { trace_ = to; }

 private:
  template <class F>
  void waiting(F issue) const;  // stream 0 does

  Backend* backend_;
  std::vector<Channel> channels_;
  std::vector<Event> events_;             // by exchange: it is over
  std::vector<int> begun_;                // by exchange: its channel
  std::array<size_t, streams> waited_{};  // by channel: for exchanges below that number
  Profile* profile_ = nullptr;
  Trace* trace_ = nullptr;
};

}  // namespace bv
