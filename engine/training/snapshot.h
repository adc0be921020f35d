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

  void allocate();  // for take()
  // Starts to copy what stream 0's work so far leaves.
  void take();
  // Takes over a pipeline's tensors, gathered from its stages.
  void take(Trainer::Saved);
  // Waits until it is there; false: cancelled. From any thread.
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
