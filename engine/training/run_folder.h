// The folder --out, claimed: config.json, val.txt, checkpoints. Rank 0 alone writes.
#pragma once
#include <string>
#include <vector>

#include "engine/report/log.h"
#include "engine/setup/setup.h"
#include "engine/training/checkpoint_writer.h"
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
  // Begins to save a checkpoint: `progress`, weights and optimizer state. Collective. settled: no
  // settle() of this step follows. Returns a line for the user, or nothing.
  std::string save(const Checkpoint& progress, Trainer&, bool best, bool settled);
  // Gives the checkpoint of this step, saved before its evaluation, what that has changed. Collective.
  void settle(const Checkpoint& progress, Trainer&, bool best);
  int64_t saved_step() const { return saved_step_; }
  // What has come to the disk since the last call. Throws RunError where something couldn't, or where
  // a weight is not finite.
  std::vector<SaveRecord> written();
  void finish();   // waits until all has, or couldn't
  void abandon();  // waits, for a run that has failed
  // After a diverged run: what to try, and which checkpoint there is. Collective; waits for the disk and
  // throws as written().
  std::string advice();

 private:
  void describe(Checkpoint&) const;
  int64_t last_step();  // of what is on the disk, once all is; -1: nothing
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
