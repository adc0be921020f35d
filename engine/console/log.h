// The records of a run, and metrics.jsonl, where rank 0 writes them for other programs to read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "engine/console/progress.h"

namespace bv {

// One line per epoch, even for an epoch that the end of the run cuts short. Fractions are 0-1.
struct EpochRecord {
  int64_t epoch = 0, step = 0;
  double train_loss = 0;
  std::optional<double> train_top1;          // empty: not known; null in the file
  std::optional<double> val_loss, val_top1;  // empty: not evaluated; null in the file
  std::optional<double> val_top5;            // empty (not in the file): 5 classes or fewer
  std::optional<double> ema_loss, ema_top1;  // with --ema; else empty, not in the file
  double lr = 0;
  // The decision of --amp-policy; empty (not in the file) without it.
  std::string precision, precision_reason;
  std::optional<double> images_per_second;  // empty: the epoch was trained before a resume
  double seconds = 0;
  std::optional<double> eval_seconds;  // empty: not evaluated; null in the file
  double save_seconds = 0;             // time training waited for checkpoints since the last record
  int64_t peak_memory_bytes = 0;       // planned
  // Measured for rank 0's process: its resident host memory now and at its peak and, on a device
  // with memory of its own, what all programs use and the most that this process allocated.
  int64_t host_memory_bytes = 0, host_peak_memory_bytes = 0;
  std::optional<int64_t> device_memory_bytes, device_peak_memory_bytes;
  // Not written to the file:
  bool whole = true;  // not ended early
  bool best = false;  // its evaluation is the best so far
};

struct SaveRecord {
  int64_t step = 0;
  bool best = false;  // best/ points to this step
};

// The launcher has started the run again (--max-restarts).
struct RestartRecord {
  int64_t step = 0;  // the run continues after this step
  int number = 0, most = 0;
  int rank = 0;          // the one that failed
  int64_t ended_in = 0;  // step in which the run ended; 0: before the first
  std::string cause;
  int processes = 0, processes_before = 0;  // now, and before the restart; 0: not known
};

std::string to_json(const StepRecord&);
std::string to_json(const EpochRecord&);
std::string to_json(const RestartRecord&);

// Offset in a metrics.jsonl at which a run resumed after `step` continues: past the lines up to
// that step. A killed run may have logged steps after its checkpoint and, if the checkpoint isn't
// `settled`, an epoch whose evaluation it lacks; the resumed run logs these again. A truncated line
// is dropped, too.
int64_t end_of_step(const std::string& path, int64_t step, bool settled = true);

}  // namespace bv
