// The claimed folder --out: config.json, lists of images, checkpoints. Only rank 0 writes.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/console/log.h"
#include "engine/run/checkpoint_writer.h"
#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

class RunFolder {
 public:
  // `background` writes the checkpoints.
  RunFolder(const Setup&, Backend&, const Trainer&, Communicator*, Background&);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Writes config.json. Returns a warning if the data's files have changed since the checkpoint
  // that is resumed, else nothing.
  std::string begin();
  void list_images();  // writes the lists of images, when more of them have turned out to be bad
  // Restores the optimizer's state from --resume's checkpoint; the weights are set already.
  void restore(Trainer&) const;
  // Begins to save a checkpoint: `progress`, weights and optimizer state. If `progress` isn't
  // settled, settle() must follow. Collective. Returns a line for the user, or nothing.
  std::string save(const Checkpoint& progress, Trainer&, bool best);
  // Adds an evaluation's outcome to the checkpoint that was saved before it. Collective.
  void settle(const Checkpoint& progress, Trainer&, bool best);
  int64_t saved_step() const { return saved_step_; }
  // Checkpoints completed since the last call. Throws RunError if one couldn't be written or had a
  // weight that is not finite.
  std::vector<SaveRecord> written();
  void finish();  // waits until all are written or have failed
  void wait(std::chrono::duration<double> at_most) { writer_.wait(at_most); }  // at most that long
  void abandon();  // finish() for a run that has failed itself
  // Removes what a new run has written, if it ends by the user's mistake before its first step.
  void discard();
  // For a run that diverged: text on what to try and on the last checkpoint. Collective; waits for
  // the disk and throws like written().
  std::string advice();

 private:
  void describe(Checkpoint&, const Trainer&) const;
  int64_t last_step();  // step of the newest checkpoint; waits for the disk; -1: none
  std::string advice_from(int64_t step) const;
  const Setup& setup_;
  Backend& backend_;
  Communicator* communicator_;
  bool first_;  // rank 0
  bool whole_;  // each process has the whole model
  bool new_ = false;
  int64_t saved_step_ = -1;
  int64_t resumed_step_;
  uint64_t contents_ = 0;  // contents_fingerprint() when the run began
  CheckpointWriter writer_;
};

}  // namespace bv
