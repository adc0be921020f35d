#include "engine/pipeline/stage_links.h"

namespace bv {

StageLinks::StageLinks(Backend& backend, Communicator& all, const Grid& grid) : backend_(&backend) {
  const auto add = [&] {
    const int number = channels();
    channels_.emplace_back(backend, all.group(grid.pipeline_group()), number);
  };
  add();
  // On a CPU a rank has streams only if it has enough cores; the second channel needs streams on
  // all ranks.
  const bool beside = channel().stream() && !stages().in_call_order();
  if (all.all_reduce_scalar(beside ? 0 : 1) == 0) add();
}

template <class F>
void StageLinks::waiting(F issue) const {
  timed(profile_, *backend_, "pipeline", [&] { traced(trace_, nullptr, {Work::exchange}, issue); });
}

size_t StageLinks::exchange(std::span<const Transfer> transfers, int channel) {
  const Channel& used = channels_[static_cast<size_t>(channel)];
  const size_t number = begun_.size();
  begun_.push_back(channel);
  if (!used.stream()) {
    waiting([&] { used.communicator().exchange(transfers, nullptr); });
    return number;
  }
  while (events_.size() <= number) events_.push_back(backend_->create_event());
  used.communicator().exchange(transfers, used.fork());
  backend_->record(events_[number], used.stream());
  return number;
}

void StageLinks::wait(size_t number) {
  const auto channel = static_cast<size_t>(begun_[number]);
  if (!channels_[channel].stream() || number < waited_[channel]) return;
  waiting([&] { backend_->wait(nullptr, events_[number]); });
  waited_[channel] = number + 1;
}

void StageLinks::wait_for_all() {
  for (size_t number = begun_.size(); number-- > 0;) wait(number);
  begun_.clear();
  waited_ = {};
}

}  // namespace bv
