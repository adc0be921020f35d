// Writes checkpoints while training continues. Memory has room for two: one being written, one
// waiting. A newer checkpoint replaces the waiting one unless that is the best so far.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/background.h"
#include "base/error.h"
#include "base/wait.h"
#include "engine/console/log.h"
#include "engine/files/checkpoint.h"
#include "engine/training/trainer.h"

namespace bv {

// A checkpoint was refused because a weight is not finite.
struct NotFinite : RunError {
  using RunError::RunError;
};

// A copy of a model's parameters and optimizer state in host memory, from which another thread
// makes a checkpoint's files while training continues.
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

class CheckpointWriter {
 public:
  struct Request {
    Checkpoint progress;  // without tensors; if not settled, settle() follows
    bool best = false;
  };

  // Posts jobs to `background`, which must end before this object.
  CheckpointWriter(Backend&, const Trainer&, Background&, std::string folder, int keep);

  void allocate();
  // Returns memory for the next request's snapshot; submit() must follow. Waits for the disk if
  // both snapshots are in use. `replaced` is set to the step of a waiting request that is dropped.
  Snapshot& next(std::optional<int64_t>& replaced);
  void submit(Request);
  // Adds an evaluation's outcome to the checkpoint of its step. False: DIR/last is of another step,
  // so this step has to be submitted.
  bool settle(const Checkpoint& progress, bool best);

  // Rethrows the RunError of a failed job.
  void check() { background_.check(); }
  void finish();                                     // waits until all are written or have failed
  void wait(std::chrono::duration<double> at_most);  // the same, for at most this long
  // finish() for a run that has failed itself; throws nothing.
  void abandon();
  std::vector<SaveRecord> written();   // since the last call
  std::optional<int64_t> last_step();  // the newest step written by this process

 private:
  struct Waiting {
    Request request;
    Snapshot* snapshot;
  };
  void write_waiting();
  bool free(const Snapshot&) const;

  Backend& backend_;
  Background& background_;
  const std::string folder_;
  const int keep_;
  std::array<Snapshot, 2> snapshots_;
  Snapshot* next_ = nullptr;

  std::mutex mutex_;  // guards the members below
  Condition changed_;
  std::optional<Waiting> waiting_;
  const Snapshot* writing_ = nullptr;
  std::vector<SaveRecord> written_;
  std::optional<int64_t> last_step_;
};

}  // namespace bv
