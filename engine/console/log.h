// The records of a run, and metrics.jsonl, where rank 0 writes them for programs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "engine/console/progress.h"

namespace bv {

// A line after each epoch, and when a run ends within one. Fractions are 0-1.
struct EpochRecord {
  int64_t epoch = 0, step = 0;
  double train_loss = 0;
  std::optional<double> train_top1;          // empty: not known; null in the file
  std::optional<double> val_loss, val_top1;  // empty: not evaluated; null in the file
  std::optional<double> val_top5;            // empty: 5 classes or fewer; not in the file
  std::optional<double> ema_loss, ema_top1;  // of the weights' average; empty: not in the file
  double lr = 0;
  // The decision of --amp-policy; empty: none, not in the file.
  std::string precision, precision_reason;
  std::optional<double> images_per_second;  // empty: all trained before the run was resumed
  double seconds = 0;
  int64_t peak_memory_bytes = 0;
  // In no line:
  bool whole = true;                            // not ended early
  bool best = false;                            // its evaluation is the best so far
  std::optional<double> test_seconds;           // of its evaluation
  int64_t host_bytes = 0, host_peak_bytes = 0;  // of this process, as the system counts
};

struct SaveRecord {
  int64_t step = 0;
  bool best = false;  // best/ is this one
};

std::string to_json(const StepRecord&);
std::string to_json(const EpochRecord&);

// Offset in a metrics.jsonl of the lines after `step`: a killed run has logged steps after its
// checkpoint, which the resumed run logs again, and the epoch's line of a step whose evaluation is
// not in the checkpoint. A truncated line is dropped, too.
int64_t end_of_step(const std::string& path, int64_t step, bool settled = true);

}  // namespace bv
