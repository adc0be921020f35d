// The state of a checkpoint, and its file state.json.
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
  TensorFile weights;            // with its metadata
  TensorFile ema;                // the moving average of the weights; may be empty
  TensorFile optimizer;          // m.*, v.*; may be empty
  int64_t step = 0;              // updates done
  int64_t epoch = 0, batch = 0;  // the next batch to train on
  UpdateState update{};          // loss_scale 0: not used; found_inf and grad_norm aren't kept
  double best_top1 = -1;         // of the best evaluation so far; -1: no evaluation yet
  // Its loss, inf if not finite; unset in older versions' files unless --best-by is loss.
  std::optional<double> best_loss;
  int64_t best_step = 0;
  // Whether the epoch (or run) that ends at this step has been evaluated and recorded. If not, the
  // resumed run first does both.
  bool settled = true;
  std::optional<PrecisionState> precision;  // with --amp-policy
  // Sums over the unfinished epoch, so that its record equals that of an uninterrupted run.
  double loss_sum = 0, loss_count = 0;
  double top1_sum = 0;  // NaN: not known
  uint64_t data_fingerprint = 0;
  uint64_t data_contents = 0;  // contents_fingerprint(); 0: not known
  // The options that decide the run's weights, by name, as in config.json; empty: not known.
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

// The length of a run with this data and these options.
struct RunLength {
  int64_t batches;     // per epoch
  int64_t accumulate;  // batches per update; an epoch's last update may have fewer
  int64_t epochs;      // at most
};
// Throws UserError naming `path` if such a run can't reach this state.
void require_reachable(const Checkpoint& c, const RunLength&, const std::string& path);

}  // namespace bv
