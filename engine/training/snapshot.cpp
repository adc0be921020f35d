#include "engine/training/snapshot.h"

#include <cstring>
#include <utility>

namespace bv {

void Snapshot::allocate() {
  const Parameters& parameters = trainer_->parameters();
  memory_ = host_memory(*backend_, parameters.copy_bytes());
  std::memset(memory_.get(), 0,
              parameters.copy_bytes());  // touch all pages before the first save
  copy_ = parameters.copy_in(memory_.get());
}

void Snapshot::take() {
  state_ = State::copying;
  trainer_->parameters().copy_to(copy_);
  backend_->call_on_host(nullptr, [this] {
    state_ = State::there;
    state_.notify_all();
  });
}

void Snapshot::take(Trainer::Saved saved) { gathered_ = std::move(saved); }

bool Snapshot::wait() const {
  state_.wait(State::copying);
  return state_ == State::there;
}

void Snapshot::cancel() {
  state_ = State::cancelled;
  state_.notify_all();
}

CheckpointTensors Snapshot::tensors() const {
  if (!gathered_) return trainer_->parameters().tensors_of(copy_);
  return {views_of(gathered_->weights), views_of(gathered_->ema), views_of(gathered_->moments)};
}

}  // namespace bv
