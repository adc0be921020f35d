// A copy of a model's parameters and optimizer state in host memory, from which another thread
// makes a checkpoint's files while training continues.
#pragma once
#include <atomic>
#include <memory>
#include <optional>

#include "engine/training/trainer.h"

namespace bv {

class Snapshot {
 public:
  Snapshot(Backend& backend, const Trainer& trainer) : backend_(&backend), trainer_(&trainer) {}
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  void allocate();  // required before take()
  // Starts a copy of the state after stream 0's work so far.
  void take();
  // Takes over the tensors of a whole pipeline, gathered from its stages.
  void take(Trainer::Saved);
  // Waits until the copy is complete; false: cancelled. Callable from any thread.
  bool wait() const;
  void cancel();  // the device has failed
  CheckpointTensors tensors() const;

 private:
  enum class State { copying, there, cancelled };
  Backend* backend_;
  const Trainer* trainer_;
  std::shared_ptr<void> memory_;
  ParameterCopy copy_{};
  std::optional<Trainer::Saved> gathered_;
  std::atomic<State> state_{State::there};
};

}  // namespace bv
