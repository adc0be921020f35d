#include "engine/run/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace bv {
namespace {

// With a huge learning rate a finite gradient can overflow weights; the loss shows it a step late.
void check_finite(const Checkpoint& c, const TensorViews& weights) {
  for (const TensorView& tensor : weights)
    if (!std::ranges::all_of(tensor.data, [](float x) { return std::isfinite(x); }))
      throw NotFinite("step " + std::to_string(c.step) + ": the update made " + tensor.name +
                      " not finite");
}

}  // namespace

void Snapshot::allocate() {
  const Parameters& parameters = trainer_->parameters();
  memory_ = host_memory(*backend_, parameters.copy_bytes());
  std::memset(memory_.get(), 0,
              parameters.copy_bytes());  // touch all pages before the first save
  copy_ = parameters.copy_in(memory_.get());
}

void Snapshot::take() {
  state_ = State::copying;
  trainer_->copy_to(copy_);
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

CheckpointWriter::CheckpointWriter(Backend& backend, const Trainer& trainer, Background& background,
                                   std::string folder, int keep)
    : backend_(backend),
      background_(background),
      folder_(std::move(folder)),
      keep_(keep),
      snapshots_{{{backend, trainer}, {backend, trainer}}} {}

void CheckpointWriter::allocate() {
  for (Snapshot& snapshot : snapshots_) snapshot.allocate();
}

bool CheckpointWriter::free(const Snapshot& snapshot) const {
  return &snapshot != writing_ && !(waiting_ && waiting_->snapshot == &snapshot);
}

Snapshot& CheckpointWriter::next(std::optional<int64_t>& replaced) {
  std::unique_lock lock(mutex_);
  const auto found = [this] {
    return std::ranges::find_if(snapshots_, [this](const Snapshot& s) { return free(s); });
  };
  if (waiting_ && !waiting_->request.best) {
    replaced = waiting_->request.progress.step;
    waiting_.reset();
  }
  const auto room = [&] { return !waiting_ && found() != snapshots_.end(); };
  if (!room()) {
    lock.unlock();
    backend_.synchronize(nullptr);  // the snapshot being written may wait for its copy
    lock.lock();
    changed_.wait(lock, room);
  }
  next_ = &*found();
  return *next_;
}

void CheckpointWriter::submit(Request request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = {std::move(request), next_};
  }
  background_.post([this] { write_waiting(); });
}

// A job whose checkpoint was replaced writes the replacement, or finds nothing to do.
void CheckpointWriter::write_waiting() {
  Request request;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_) return;
    request = std::move(waiting_->request);
    writing_ = waiting_->snapshot;
    waiting_.reset();
  }
  struct Done {
    CheckpointWriter& writer;
    ~Done() {
      {
        const std::lock_guard lock(writer.mutex_);
        writer.writing_ = nullptr;
      }
      writer.changed_.notify_all();
    }
  } const done{*this};
  changed_.notify_all();
  if (!writing_->wait()) return;
  const CheckpointTensors tensors = writing_->tensors();
  check_finite(request.progress, tensors.weights);
  save_checkpoint(folder_, request.progress, tensors, request.best, keep_);
  const std::lock_guard lock(mutex_);
  last_step_ = request.progress.step;
  if (request.progress.settled) written_.push_back({request.progress.step, request.best});
}

bool CheckpointWriter::settle(const Checkpoint& progress, bool best) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_ && waiting_->request.progress.step == progress.step) {
      waiting_->request = {progress, best};
      return true;
    }
    const bool ours = writing_ || last_step_ == progress.step;
    if (!ours && !is_last_checkpoint(folder_, progress.step)) return false;
  }
  background_.post([this, progress, best] {
    settle_checkpoint(folder_, progress, best, keep_);
    const std::lock_guard lock(mutex_);
    written_.push_back({progress.step, best});
  });
  return true;
}

void CheckpointWriter::finish() {
  backend_.synchronize(nullptr);
  background_.wait();
}

void CheckpointWriter::wait(std::chrono::duration<double> at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [this] { return !waiting_ && !writing_; });
}

void CheckpointWriter::abandon() {
  try {
    backend_.synchronize(nullptr);
  } catch (const std::exception&) {
    for (Snapshot& snapshot : snapshots_) snapshot.cancel();
  }
  background_.wait();
}

std::vector<SaveRecord> CheckpointWriter::written() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

std::optional<int64_t> CheckpointWriter::last_step() {
  const std::lock_guard lock(mutex_);
  return last_step_;
}

}  // namespace bv
