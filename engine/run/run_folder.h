// The folder --out, claimed: config.json, val.txt, checkpoints. Rank 0 alone writes.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/console/log.h"
#include "engine/run/checkpoint_writer.h"
#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// The validation images, where they are files: a path a line.
inline constexpr const char* val_list_name = "val.txt";

class RunFolder {
 public:
  // Its checkpoints are written by `background`.
  RunFolder(const Setup&, Backend&, const Trainer&, Communicator*, Background&);
  // A new run that ends before its first checkpoint leaves nothing behind.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Writes config.json. Returns a warning if the data have changed since the run began, or nothing.
  std::string begin();
  // Puts the state of --resume's checkpoint into the optimizer; its weights are set already.
  void restore(Trainer&) const;
  // Begins to save a checkpoint: `progress`, weights and optimizer state; if it isn't settled,
  // settle() follows. Collective. Returns a line for the user, or nothing.
  std::string save(const Checkpoint& progress, Trainer&, bool best);
  // Adds an evaluation's outcome to the checkpoint that was saved before it. Collective.
  void settle(const Checkpoint& progress, Trainer&, bool best);
  int64_t saved_step() const { return saved_step_; }
  // Checkpoints completed since the last call. Throws RunError if one couldn't be written, or had
  // a weight that is not finite.
  std::vector<SaveRecord> written();
  void finish();  // waits until all are written, or have failed
  void wait(std::chrono::duration<double> at_most) { writer_.wait(at_most); }  // but no longer
  void abandon();  // finish() of a run that has failed itself
  // After a diverged run: what to try, and which checkpoint there is. Collective; waits for the
  // disk and throws as written().
  std::string advice();

 private:
  void describe(Checkpoint&, const Trainer&) const;
  int64_t last_step();  // the newest checkpoint's, after a wait for the disk; -1: there is none
  std::string advice_from(int64_t step) const;
  const Setup& setup_;
  Communicator* communicator_;
  bool first_;  // rank 0
  bool whole_;  // each process has all of the model
  bool new_ = false;
  int64_t saved_step_ = -1;
  int64_t resumed_step_;
  uint64_t contents_ = 0;  // of the data when the run began
  CheckpointWriter writer_;
};

}  // namespace bv
