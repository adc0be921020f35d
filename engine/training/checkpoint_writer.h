// Checkpoints on their way to the disk, while training continues. There is memory for two: one that
// is written and one that waits. A newer one replaces the one that waits, unless that is the best.
#pragma once
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/background.h"
#include "engine/base/error.h"
#include "engine/files/checkpoint.h"
#include "engine/report/log.h"
#include "engine/training/snapshot.h"

namespace bv {

// A weight that is about to be saved.
struct NotFinite : RunError {
  using RunError::RunError;
};

class CheckpointWriter {
 public:
  struct Request {
    Checkpoint progress;  // without tensors
    bool best = false;
    bool settled = true;  // else settle() follows
  };

  // Jobs are posted to `background`, which ends before this does.
  CheckpointWriter(Backend&, const Trainer&, Background&, std::string folder, int keep);

  void allocate();
  // What the next request's snapshot is taken in, before submit(). Waits if it must, for the disk.
  // `replaced` becomes the step of a request that is given up, if one is.
  Snapshot& next(std::optional<int64_t>& replaced);
  void submit(Request);
  // The evaluation of a step that was submitted, or that the run was resumed from. False: DIR/last
  // is another's; it is to be submitted.
  bool settle(const Checkpoint& progress, bool best);

  // Throws what a job has thrown: RunError.
  void check() { background_.check(); }
  void finish();  // waits until all is on the disk
  // The same for a run that has failed; throws nothing.
  void abandon();
  std::vector<SaveRecord> written();   // since the last call
  std::optional<int64_t> last_step();  // of what is on the disk, if this process has written it

 private:
  struct Waiting {
    Request request;
    Snapshot* snapshot;
  };
  void write_waiting();
  bool free(const Snapshot&) const;
  void note(const Checkpoint& progress, bool best);

  Backend& backend_;
  Background& background_;
  const std::string folder_;
  const int keep_;
  std::array<Snapshot, 2> snapshots_;
  Snapshot* next_ = nullptr;

  std::mutex mutex_;  // of the following
  std::condition_variable changed_;
  std::optional<Waiting> waiting_;
  const Snapshot* writing_ = nullptr;
  std::vector<SaveRecord> written_;
  std::optional<int64_t> last_step_;
};

}  // namespace bv
