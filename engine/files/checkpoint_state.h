// State of a checkpoint, and its file state.json.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/precision/policy.h"
#include "kernels/types.h"

namespace bv {

struct Checkpoint {
  static constexpr int version = 1;
  std::string model;
  TensorFile weights;               // with its metadata
  TensorFile ema;                   // the same of their moving average; may be empty
  TensorFile optimizer;             // m.*, v.*; may be empty
  int64_t step = 0;                 // updates done
  int64_t epoch = 0, batch = 0;     // the next batch to train on
  UpdateState update{};             // loss_scale 0: not used; no found_inf, no grad_norm
  double best_top1 = -1;            // of the best evaluation so far; -1: no evaluation yet
  std::optional<double> best_loss;  // its loss, where that chooses the best
  int64_t best_step = 0;
  // Whether the end of the epoch, or of the run, that is at this step has been dealt with: its
  // evaluation, its record. A resumed run begins with what hasn't.
  bool settled = true;
  std::optional<PrecisionState> precision;  // where --amp-policy decides
  // sums of the unfinished epoch, so that its record equals that of an uninterrupted run
  double loss_sum = 0, loss_count = 0;
  double top1_sum = 0;  // NaN: not known
  uint64_t data_fingerprint = 0;
  uint64_t data_contents = 0;  // contents_fingerprint(); 0: not known
  // The run's options that decide its weights, by name, as config.json had them; empty: not known.
  std::map<std::string, std::vector<std::string>, std::less<>> options;
};

struct CheckpointState {
  Checkpoint progress;  // without weights and optimizer
  std::map<std::string, FileDigest> files;
};

std::string write_checkpoint_state(const Checkpoint& c,
                                   const std::map<std::string, FileDigest>& files);
// Throws UserError naming `path` if the text is foreign, of another version or damaged.
CheckpointState parse_checkpoint_state(std::string_view text, const std::string& path);

// How a run with these data and options counts.
struct RunLength {
  int64_t batches;     // of an epoch
  int64_t accumulate;  // batches of an update; an epoch's last update may have fewer
  int64_t epochs;      // at most
};
// Throws UserError naming `path` if such a run never comes to this state.
void require_reachable(const Checkpoint& c, const RunLength&, const std::string& path);

}  // namespace bv
