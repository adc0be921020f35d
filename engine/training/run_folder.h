// The folder --out, claimed: config.json, val.txt, checkpoints. Rank 0 alone writes.
#pragma once
#include <string>

#include "engine/setup/setup.h"
#include "kernels/backend.h"

namespace bv {

// The validation images, where they are files: a path a line.
inline constexpr const char* val_list_name = "val.txt";

class RunFolder {
 public:
  RunFolder(const Setup&, Communicator*);
  // A new run that ends before its first checkpoint leaves nothing behind.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Writes config.json. Returns a warning if the data have changed since the run began, or nothing.
  std::string begin();
  // Puts the state of --resume's checkpoint into the optimizer; its weights are set already.
  void restore(Trainer&) const;
  // A checkpoint: `progress`, weights and optimizer state. Collective. Throws RunError where a
  // weight is not finite.
  void save(const Checkpoint& progress, Trainer&, bool best);
  int64_t saved_step() const { return saved_step_; }
  // After a diverged run: what to try, and which checkpoint there is.
  std::string advice() const;

 private:
  const Setup& setup_;
  Communicator* communicator_;
  bool first_;  // rank 0
  bool new_ = false;
  int64_t saved_step_ = -1;
  uint64_t contents_ = 0;  // of the data when the run began
};

}  // namespace bv
